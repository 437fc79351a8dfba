"""Taps: the one mechanism for reading or changing activations.

Modules call `x = tap("pattern", x)` at named sites. A site's address is the path of its module and its
name, as in `decoder.blocks.3.cross.pattern`. The default tap does nothing and costs one call.
A kernel also reports its call, `tap.record_call(call)`, so that its weights can be computed later; a router
reports its decision, `tap.record_routing(routing)`, from which training computes how balanced it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from .experts import RouterCall
    from .kernels.kernel import RecordedCall

Visit = Callable[[str, Tensor], Tensor]
OnCall = Callable[[str, "RecordedCall"], None]
OnRouting = Callable[[str, "RouterCall"], None]


class Tap:
    """Calls `visit(address, x)` at every site whose address matches a glob, and continues with its result."""

    def __init__(
        self,
        sites: str,
        visit: Visit,
        path: str = "",
        on_call: OnCall | None = None,
        on_routing: OnRouting | None = None,
    ) -> None:
        self._sites, self._visit, self._path = sites, visit, path
        self._on_call, self._on_routing = on_call, on_routing

    def at(self, name: str | int) -> Tap:
        """This tap, one module further down."""
        path = f"{self._path}.{name}".lstrip(".")
        return Tap(self._sites, self._visit, path, self._on_call, self._on_routing)

    def wants(self, site: str) -> bool:
        """Whether this site is tapped: check it before computing a tensor that only taps need."""
        return fnmatchcase(f"{self._path}.{site}".lstrip("."), self._sites)

    def __call__(self, site: str, x: Tensor) -> Tensor:
        if not self.wants(site):
            return x
        return self._visit(f"{self._path}.{site}".lstrip("."), x)

    def record_call(self, call: RecordedCall) -> None:
        """Report the call of this attention's kernel: `on_call(address of the attention, call)`."""
        if self._on_call is not None:
            self._on_call(self._path, call)

    def record_routing(self, routing: RouterCall) -> None:
        """Report what a router decided: `on_routing(address of the feed-forward layer, routing)`."""
        if self._on_routing is not None:
            self._on_routing(self._path, routing)


class _Off(Tap):
    def __init__(self) -> None:
        super().__init__("", lambda _, x: x)

    def at(self, name: str | int) -> Tap:
        return self

    def wants(self, site: str) -> bool:
        return False

    def __call__(self, site: str, x: Tensor) -> Tensor:
        return x


OFF: Tap = _Off()


class Recorder(dict[str, Tensor]):
    """Keeps a detached copy of each recorded tensor: `record["decoder.blocks.0.attn.pattern"]`."""

    def tap(self, sites: str = "*") -> Tap:
        return Tap(sites, self._keep)

    def _keep(self, address: str, x: Tensor) -> Tensor:
        # A clone, not a view: a pre-allocated cache writes into the tensors that pass here.
        self[address] = x.detach().clone()
        return x


def sites(model: nn.Module) -> Iterator[str]:
    """The address of every site of a model, shared layers listed once for each position."""
    for path, module in model.named_modules(remove_duplicate=False):
        for site in getattr(module, "SITES", ()):
            yield f"{path}.{site}".lstrip(".")
