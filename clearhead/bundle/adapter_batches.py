"""Several adapters over one bundle: texts and the name of an adapter for each in; their outputs out.

    crowd = ch.together(bundle, {"fr": one, "de": "runs/german"})
    crowd.generate(["the cat", "the cat", "the cat"], adapter=["fr", None, "de"])

Texts with different adapters, or none, share a batch while text is generated, so that the base is read once
for all. Adapters that do something else than change linear layers (virtual tokens, bottlenecks, heads of
their own) have batches of their own. Nothing is switched: any number of threads may ask for any adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import InputError, nearest, quoted
from ..generate import Answer, GenerationResult, PromptLike, TextGenerator, as_list, is_single
from ..nn import TransformerModel
from ..tune import SharedAdapters, TunedModel
from .adapters import fingerprint
from .bundle import Bundle
from .generation import text_generator
from .guesses import Prediction
from .loading import load

T = TypeVar("T")
Names = str | None | Sequence[str | None]


class Together:
    """A bundle and adapters over it, by name; None is the bundle itself."""

    def __init__(self, bundle: Bundle, adapters: Mapping[str, Bundle | str | Path]) -> None:
        self.base = bundle
        self.adapters = {name: _over(bundle, name, each) for name, each in adapters.items()}
        tuned = {
            name: TunedModel(each.model, each.spec, each.tuning)
            for name, each in self.adapters.items()
            if each.tuning is not None
        }
        self._shared = SharedAdapters(bundle.model, tuned)

    def __repr__(self) -> str:
        return f"Together({self.base!r}, {', '.join(self.adapters)})"

    def __getitem__(self, name: str | None) -> Bundle:
        """The bundle with one adapter, or without."""
        if name is None:
            return self.base
        if name not in self.adapters:
            raise InputError(f"there is no adapter {quoted(name)}; {nearest(str(name), self.adapters)}")
        return self.adapters[name]

    @property
    def sharing(self) -> tuple[str, ...]:
        """The adapters whose texts share a batch."""
        return tuple(self._shared.names)

    def model_of(self, adapters: Sequence[str | None]) -> TransformerModel:
        """A model whose first row has the first of these adapters, and so on: those of `sharing`, or None."""
        return self._shared.model_of(adapters)

    def generate(
        self,
        text: PromptLike | Sequence[PromptLike],
        *,
        adapter: Names = None,
        batch: int = 16,
        **settings: Any,
    ) -> str | list[str]:
        """As `Bundle.generate`; `adapter` is one name for all texts, or one for each."""
        found = self.answer(text, adapter=adapter, batch=batch, **settings)
        answers = found if isinstance(found, list) else [found]
        texts = [each.text for best in answers for each in (best, *best.others)]
        return texts[0] if is_single(text) and len(texts) == 1 else texts

    def answer(
        self,
        text: PromptLike | Sequence[PromptLike],
        *,
        adapter: Names = None,
        batch: int = 16,
        **settings: Any,
    ) -> Answer | list[Answer]:
        """As `Bundle.answer`."""
        prompts = as_list(text)
        names = self._names(adapter, len(prompts))
        generators = {name: text_generator(self[name], settings) for name in dict.fromkeys(names)}
        rows = [generators[name].encode_prompts([p])[0] for name, p in zip(names, prompts, strict=True)]
        results: dict[int, GenerationResult] = {}
        for chosen in self._groups(names, generators):
            generator = generators[names[chosen[0]]]
            generator.model_of = self._model_of([names[i] for i in chosen])
            found = generator.generate_batch([rows[i] for i in chosen], batch)
            results.update(zip(chosen, found, strict=True))
        answers = [generators[name].answer_of(prompts[i], results[i]) for i, name in enumerate(names)]
        return answers[0] if is_single(text) else answers

    def predict(
        self, text: str | Sequence[str], *, adapter: Names = None, **options: Any
    ) -> Prediction | list[Prediction]:
        """As `Bundle.predict`, adapter by adapter."""
        texts = [text] if isinstance(text, str) else list(text)
        found = self._by_adapter(texts, adapter, lambda bundle, part: bundle.predict(part, **options))
        return found[0] if isinstance(text, str) else found

    def embed(self, texts: str | Sequence[str], *, adapter: Names = None) -> Tensor:
        """As `Bundle.embed`, adapter by adapter."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        vectors = self._by_adapter(listed, adapter, lambda bundle, part: list(bundle.embed(part)))
        return vectors[0] if isinstance(texts, str) else torch.stack(vectors)

    def _by_adapter(
        self, texts: list[str], adapter: Names, ask: Callable[[Bundle, list[str]], list[T]]
    ) -> list[T]:
        names = self._names(adapter, len(texts))
        found: dict[int, T] = {}
        for name in dict.fromkeys(names):
            chosen = [i for i, each in enumerate(names) if each == name]
            found.update(zip(chosen, ask(self[name], [texts[i] for i in chosen]), strict=True))
        return [found[i] for i in range(len(texts))]

    def _names(self, adapter: Names, count: int) -> list[str | None]:
        names = [adapter] * count if adapter is None or isinstance(adapter, str) else list(adapter)
        if len(names) != count:
            raise InputError(f"{len(names)} adapters for {count} texts; give one name, or one for each text")
        for name in names:
            self[name]  # an error for a name that is not there
        return names

    def _groups(
        self, names: Sequence[str | None], generators: Mapping[str | None, TextGenerator]
    ) -> list[list[int]]:
        """The numbers of the texts that may share batches: with equal settings, such as where answers end."""
        groups: list[tuple[object, list[int]]] = []
        for i, name in enumerate(names):
            alone = name is not None and name not in self._shared.names
            key = name if alone else generators[name].settings
            known = next((chosen for other, chosen in groups if other == key), None)
            if known is None:
                groups.append((key, [i]))
            else:
                known.append(i)
        return [chosen for _, chosen in groups]

    def _model_of(self, names: Sequence[str | None]) -> Callable[[Sequence[int]], Any] | None:
        """The model of a batch by the numbers of its texts; None where they all have the same adapter."""
        if len(set(names)) == 1:
            return None
        return lambda numbers: self._shared.model_of([names[i] for i in numbers])


def together(bundle: Bundle, adapters: Mapping[str, Bundle | str | Path]) -> Together:
    """Several adapters over one bundle: tuned bundles, or folders of adapters, by name.

    Their texts share batches: `together(bundle, {"fr": one}).generate(texts, adapter=["fr", None])`.
    """
    if not isinstance(bundle, Bundle) or not isinstance(adapters, Mapping):
        raise InputError('together takes a bundle and adapters by name: ch.together(bundle, {"fr": tuned})')
    return Together(bundle, adapters)


def _over(bundle: Bundle, name: str, adapter: object) -> Bundle:
    """A bundle that is tuned over this one."""
    if isinstance(adapter, str | Path):
        return load(bundle, adapter=adapter)
    if not isinstance(adapter, Bundle) or adapter.tuning is None or adapter.base is None:
        raise InputError(f"adapter {quoted(name)} is {quoted(adapter)}; expected a tuned bundle or a folder")
    if adapter.base is not bundle and fingerprint(adapter.base) != fingerprint(bundle):
        raise InputError(
            f"adapter {quoted(name)} is over other weights than this bundle; tune this one, or load the "
            f"adapter over it: ch.load(bundle, adapter=FOLDER)"
        )
    return adapter
