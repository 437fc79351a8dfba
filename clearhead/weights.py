"""Weight tables: one reversible rule per tensor between a published checkpoint and ours.

`{i}` stands for a layer number, `{e}` for that of an expert, `{p}` for `weight` or `bias`, `{rest}` for
anything, where tensors are ignored. The same table loads and exports, so the inverse is never written by
hand. A tensor that no rule matches is an error, in both directions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from .errors import LoadError

StateDict = dict[str, Tensor]
Placeholders = dict[str, str]  # the values of {i}, {e} and {p} in a tensor's name
PLACEHOLDERS = {"i": r"\d+", "e": r"\d+", "p": "weight|bias", "rest": ".+"}  # and what they match


@dataclass(frozen=True)
class Name:
    """One of theirs is one of ours: perhaps transposed (GPT-2), perhaps with leading ones (BART's bias)."""

    theirs: str
    ours: str
    transpose: bool = False
    leading: int = 0  # leading dimensions of size one in theirs
    heads: int = 0  # the heads, where theirs has them as a dimension of their own (XLNet)

    def load(self, x: Tensor, placeholders: Placeholders) -> StateDict:
        x = x.reshape(x.shape[self.leading :])
        x = x.flatten(1) if self.heads else x
        return {self.ours.format(**placeholders): x.mT if self.transpose and x.ndim == 2 else x}

    def export(self, ours: Mapping[str, Tensor], placeholders: Placeholders) -> Tensor:
        x = ours[self.ours.format(**placeholders)]
        x = x.mT if self.transpose and x.ndim == 2 else x
        x = x.reshape(len(x), self.heads, -1) if self.heads else x
        return x.reshape((1,) * self.leading + tuple(x.shape))

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.ours,)


@dataclass(frozen=True)
class Fused:
    """One of theirs is several of ours, one under the other; `per_head` where they alternate (NeoX).

    They are of one size, unless `sizes` says otherwise: in rows or as a proportion, of each of those that
    alternate. So Falcon, with 4 queries that share a key and a value, is `sizes=(4, 1, 1)` for each key.
    """

    theirs: str
    parts: tuple[str, ...]
    transpose: bool = False
    per_head: int = 0  # how many heads, or groups of heads, alternate
    sizes: tuple[int, ...] = ()

    def load(self, x: Tensor, placeholders: Placeholders) -> StateDict:
        x = x.mT if self.transpose and x.ndim == 2 else x
        sizes = self._sizes
        split = torch.split(x.reshape(self.per_head or 1, sum(sizes), -1, *x.shape[1:]), sizes, dim=1)
        pieces = [piece.reshape(-1, *x.shape[1:]) for piece in split]
        return {part.format(**placeholders): piece for part, piece in zip(self.parts, pieces, strict=True)}

    def export(self, ours: Mapping[str, Tensor], placeholders: Placeholders) -> Tensor:
        pieces = [ours[part.format(**placeholders)] for part in self.parts]
        split = [
            piece.reshape(self.per_head or 1, size, -1, *piece.shape[1:])
            for piece, size in zip(pieces, self._sizes, strict=True)
        ]
        x = torch.cat(split, dim=1).reshape(-1, *pieces[0].shape[1:])
        return x.mT if self.transpose and x.ndim == 2 else x

    @property
    def _sizes(self) -> list[int]:
        return list(self.sizes) or [1] * len(self.parts)


@dataclass(frozen=True)
class Stacked:
    """One of theirs holds the tensors of all experts, or of all heads, along its first dimension (gpt-oss).

    `parts` are ours of one of them, with `{e}`; the rows of several alternate, as those of gate and up do.
    """

    theirs: str
    parts: tuple[str, ...]
    transpose: bool = False

    def load(self, x: Tensor, placeholders: Placeholders) -> StateDict:
        x = x.mT if self.transpose and x.ndim == 3 else x
        return {
            part.format(**placeholders, e=e): matrix[n :: len(self.parts)]
            for e, matrix in enumerate(x)
            for n, part in enumerate(self.parts)
        }

    def export(self, ours: Mapping[str, Tensor], placeholders: Placeholders) -> Tensor:
        experts: list[Tensor] = []
        while self.parts[0].format(**placeholders, e=len(experts)) in ours:
            named = [part.format(**placeholders, e=len(experts)) for part in self.parts]
            experts.append(torch.stack([ours[name] for name in named], dim=1).flatten(0, 1))
        x = torch.stack(experts)
        return x.mT if self.transpose and x.ndim == 3 else x


@dataclass(frozen=True)
class Alias:
    """A second name of a tensor that another rule owns, as for tied heads. Read if present, not required."""

    theirs: str
    ours: str


@dataclass(frozen=True)
class Ignore:
    """Known, not used here: a buffer we compute, or the weights of a part this model does not have.

    What a checkpoint had is written back as it was. `like` names a tensor of ours whose copy is written
    for a new model, where theirs requires it.
    """

    theirs: str
    why: str
    like: str | None = None
    value: Callable[[torch.Size], Tensor] | None = None  # what a tensor of this shape must hold, to rounding


WeightRule = Name | Fused | Stacked | Alias | Ignore
Table = tuple[WeightRule, ...]


@dataclass(frozen=True)
class StoredMatrix:
    """A linear layer of a checkpoint: the layers here that it becomes, and how their rows alternate in it."""

    parts: tuple[str, ...]  # addresses of modules
    rule: Name | Fused

    def join(self, pieces: Sequence[Tensor]) -> Tensor:
        """Rows of every part, (outputs, ...) or (outputs,), as the rows of the whole."""
        if isinstance(self.rule, Name):
            return pieces[0]
        names = [str(i) for i in range(len(self.parts))]
        return self._plain.export(dict(zip(names, pieces, strict=True)), {})

    def split(self, x: Tensor) -> list[Tensor]:
        """The inverse of `join`."""
        return [x] if isinstance(self.rule, Name) else list(self._plain.load(x, {}).values())

    @property
    def _plain(self) -> Fused:
        assert isinstance(self.rule, Fused)
        return replace(self.rule, parts=tuple(str(i) for i in range(len(self.parts))), transpose=False)


@dataclass
class Loaded:
    """The result of applying a table to a checkpoint: our tensors, and how each of theirs was used."""

    state: StateDict = field(default_factory=dict)
    used: list[str] = field(default_factory=list)
    aliases: StateDict = field(default_factory=dict)  # theirs -> tensor, equal to one that was used
    kept: StateDict = field(default_factory=dict)  # ignored, kept for export
    reasons: dict[str, str] = field(default_factory=dict)  # why each of those was ignored
    unknown: list[str] = field(default_factory=list)  # no rule matches these


def load_tensors(theirs: Mapping[str, Tensor], table: Table) -> Loaded:
    """Their tensors as ours. Nothing is copied: views of what was given, transposed ones included."""
    loaded = Loaded()
    aliases: list[tuple[str, Alias, Placeholders]] = []
    for name in theirs:
        rule, placeholders = _find_rule(name, table)
        if rule is None:
            loaded.unknown.append(name)
        elif isinstance(rule, Ignore):
            loaded.kept[name], loaded.reasons[name] = theirs[name], rule.why
            _check_value(rule, name, theirs[name])
        elif isinstance(rule, Alias):
            aliases.append((name, rule, placeholders))
        else:
            loaded.used.append(name)
            loaded.state |= _load_rule(rule, name, theirs[name], placeholders)
    # Last, because each is compared with the tensor it is tied to.
    for name, alias, placeholders in aliases:
        _load_alias(loaded, name, theirs[name], alias.ours.format(**placeholders))
    return loaded


def _check_value(rule: Ignore, name: str, x: Tensor) -> None:
    """What is computed here instead of being read must be what the file holds."""
    if rule.value is None or x.is_meta:
        return
    # As the reference computes it, in float32 or in float64, rounded to what the file stores.
    rounding = max(2 * torch.finfo(x.dtype).eps, 1e-6) if x.is_floating_point() else 0.0
    if (x.double() - rule.value(x.shape)).abs().max() > rounding:
        raise LoadError(
            f"{name} does not hold {rule.why}: it was changed or trained, and is computed here, not read"
        )


def _load_rule(rule: Name | Fused | Stacked, name: str, x: Tensor, placeholders: Placeholders) -> StateDict:
    try:
        return rule.load(x, placeholders)
    except (RuntimeError, ValueError, IndexError):  # it cannot be split or transposed as the table requires
        message = f"{name} has the shape {tuple(x.shape)}, which does not fit the config"
        raise LoadError(f"{message}: weights and config are not of the same model") from None


def export(ours: Mapping[str, Tensor], table: Table) -> StateDict:
    """Our tensors as theirs: every rule that owns a tensor, in the order of the table."""
    theirs: StateDict = {}
    written: set[str] = set()
    for rule in table:
        if isinstance(rule, Ignore) and rule.like is not None:
            theirs[rule.theirs] = ours[rule.like].clone(memory_format=torch.contiguous_format)
        if isinstance(rule, Alias | Ignore):
            continue
        for name, (placeholders, parts) in _tensors_of(rule, ours).items():
            theirs[name] = rule.export(ours, placeholders).contiguous()
            written.update(parts)
    unwritten = sorted(set(ours) - written)
    if unwritten:
        raise LoadError(f"no rule of the table writes {', '.join(unwritten[:5])}")
    return theirs


def targets(name: str, table: Table) -> tuple[str, ...] | None:
    """The names of ours that a tensor of theirs becomes: none if it is ignored, None if no rule matches."""
    rule, placeholders = _find_rule(name, table)
    if rule is None:
        return None
    parts = () if isinstance(rule, Ignore) else (rule.ours,) if isinstance(rule, Alias) else rule.parts
    return tuple(part.format(**{"e": "0", **placeholders}) for part in parts)


def their_names(ours: Iterable[str], table: Table) -> dict[str, tuple[str, ...]]:
    """The names of theirs that these parameters are exported under, each with the names of ours it holds."""
    ours = list(ours)
    return {
        name: tuple(parts)
        for rule in table
        if isinstance(rule, Name | Fused | Stacked)
        for name, (_, parts) in _tensors_of(rule, ours).items()
    }


def stored_matrices(ours: Iterable[str], table: Table) -> dict[str, StoredMatrix]:
    """The layers of a checkpoint by name, out of the names of parameters here.

    Left out are matrices that are no layers there: they have more dimensions, or hold those of all experts.
    """
    ours = list(ours)
    found: dict[str, StoredMatrix] = {}
    for rule in table:
        shaped = isinstance(rule, Name) and (rule.heads or rule.leading)
        if not isinstance(rule, Name | Fused) or shaped:
            continue
        for name, (_, parts) in _tensors_of(rule, ours).items():
            if name.endswith(".weight") and all(part.endswith(".weight") for part in parts):
                modules = tuple(part.removesuffix(".weight") for part in parts)
                found[name.removesuffix(".weight")] = StoredMatrix(modules, rule)
    return found


def export_aliases(ours: Mapping[str, Tensor], table: Table, names: Iterable[str]) -> StateDict:
    """The aliases of a checkpoint with what their owners hold now: training changed both, or neither."""
    theirs: StateDict = {}
    for name in names:
        rule, placeholders = _find_rule(name, table)
        if isinstance(rule, Alias):
            theirs[name] = ours[rule.ours.format(**placeholders)].contiguous()
    return theirs


def _load_alias(loaded: Loaded, name: str, x: Tensor, ours: str) -> None:
    """An alias must equal the tensor it is tied to, unless that tensor is missing."""
    owner = loaded.state.get(ours)
    if owner is None:
        loaded.state[ours] = x
        loaded.used.append(name)
    elif owner.shape == x.shape and torch.equal(owner, x):
        loaded.aliases[name] = x
    else:
        raise LoadError(
            f"{name} should equal the tensor it is tied to ({ours}), and does not; the checkpoint is "
            f"untied: set tie_word_embeddings to false in config.json"
        )


def _find_rule(name: str, table: Table) -> tuple[WeightRule | None, Placeholders]:
    for rule in table:
        match = _pattern(rule.theirs).fullmatch(name)
        if match:
            return rule, match.groupdict()
    return None, {}


def _tensors_of(
    rule: Name | Fused | Stacked, ours: Iterable[str]
) -> dict[str, tuple[Placeholders, list[str]]]:
    """The tensors of theirs that a rule writes: their placeholders, and the names of ours that each holds."""
    found: dict[str, tuple[Placeholders, list[str]]] = {}
    for match in map(_pattern(rule.parts[0]).fullmatch, ours):
        if match is None:
            continue
        every = match.groupdict()
        own = {key: value for key, value in every.items() if f"{{{key}}}" in rule.theirs}
        _, parts = found.setdefault(rule.theirs.format(**own), (own, []))
        parts += [part.format(**every) for part in rule.parts]
    return found


_PATTERNS: dict[str, re.Pattern[str]] = {}


def _pattern(template: str) -> re.Pattern[str]:
    if template not in _PATTERNS:
        pattern = re.escape(template)
        for placeholder, matches in PLACEHOLDERS.items():
            pattern = pattern.replace(rf"\{{{placeholder}\}}", f"(?P<{placeholder}>{matches})")
        _PATTERNS[template] = re.compile(pattern)
    return _PATTERNS[template]
