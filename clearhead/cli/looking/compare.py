"""`clearhead look MODEL TEXT --compare [OTHER]`: two models and a text, or a file of texts; what changed.

Alone, --compare looks at what was put on MODEL: an adapter, edits of --set, parts left out by --without, or a
precision, the first of these that there is; the others hold before and after. With OTHER it looks at two
models, or at an adapter over MODEL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...bundle import Bundle, Effects, base_of, base_of_adapter, compare, compare_rows, load
from ...errors import InputError
from ...lens import check_comparison_path
from ...store import is_adapter_folder, resolve
from ..console import ERR, OUT, print_json
from ..file_rows import read_file_rows
from ..options import AdapterOptions, edits, is_edit
from .comparison import print_comparison
from .comparison_rows import print_rows


@dataclass(frozen=True)
class CompareOptions:
    """The options as typed."""

    other: tuple[str, ...]  # what follows --compare: nothing, a model, or a model and the text
    target: str | None
    set: tuple[str, ...]
    without: tuple[str, ...]
    precision: str | None
    effects: str
    new: int
    top: int
    file: str | None
    column: str | None
    target_column: str | None
    save: Path | None


@dataclass(frozen=True)
class OpenPair:
    before: Bundle
    after: Bundle
    names: tuple[str, str]


def show_comparison(
    model: str, text: str | None, options: CompareOptions, over: AdapterOptions, *, json: bool
) -> None:
    text, other = _text_and_other(text, options)
    if options.top < 1:
        raise InputError(f"--top is {options.top}, expected 1 or more")
    if options.save is not None:
        check_comparison_path(options.save)
        if options.file is not None:
            raise InputError("--save is for one text: compare a row of the file by itself")
    with ERR.status("opening both models"):
        pair = open_pair(model, other, options, over)
    if options.file is not None:
        _show_rows(pair, options, json=json)
        return
    assert text is not None
    found = compare(
        pair.before, pair.after, text, options.target,
        effects=cast(Effects, options.effects), max_new_tokens=options.new, names=pair.names,
        progress=_progress("switching parts off: pass"),
    )  # fmt: skip
    path = None if options.save is None else found.save(options.save)
    if json:
        print_json({**found.to_dict(), "saved": path})
        return
    print_comparison(found, options.top)
    for note in found.notes:
        ERR.print(f"note: {note}", style="yellow", markup=False)
    if path is not None:
        OUT.print(f"saved {path}", markup=False)


def _text_and_other(text: str | None, options: CompareOptions) -> tuple[str | None, str | None]:
    """The text and the other model: --compare may be followed by either, or by both."""
    words = list(options.other)
    if options.file is not None:
        if text is not None or len(words) > 1:
            raise InputError(f"--file compares the rows of {options.file}; leave out the text")
        return None, words[0] if words else None
    if text is None and words and not (len(words) == 1 and Path(words[0]).exists()):
        text = words.pop()
    if len(words) > 1:
        raise InputError(f"--compare takes one other model; given {' and '.join(words)}")
    if text is None or not text.strip():
        raise InputError(
            'give a text to compare the models on: clearhead look BASE "a text" --compare TUNED, or --file'
        )
    return text, words[0] if words else None


def open_pair(model: str, other: str | None, options: CompareOptions, over: AdapterOptions) -> OpenPair:
    """The models before and after, which share their weights where one is an adapter over the other."""
    spec_edits = [word for word in options.set if is_edit(word)]
    values = activation_values([word for word in options.set if not is_edit(word)])
    adapter = over.adapter if over.adapter != "none" else None
    if over.adapter == "none":
        model = str(base_of_adapter(model))
    if other is None and adapter is None and not is_adapter_model(model):
        return _with_changes(model, spec_edits, values, options)
    if options.without or values:
        raise InputError(
            "--without and --set ADDRESS=VALUE change one model alone: give them with --compare and no other "
            "model or adapter"
        )
    opened = _Opener(edits(spec_edits), any_base=over.any_base)
    found = opened.with_base(model, adapter) if other is None else opened.two(model, adapter, other)
    if options.precision is not None:
        for bundle in (found.before, found.after):
            bundle.prepare(options.precision)
    return found


def activation_values(words: Sequence[str]) -> dict[str, str]:
    """--set ADDRESS=VALUE by address."""
    pairs = [word.partition("=") for word in words]
    wrong = [word for word, pair in zip(words, pairs, strict=True) if not pair[2]]
    if wrong:
        raise InputError(f"--set takes ADDRESS=VALUE, such as tower.blocks.0.ff.out=0; given {wrong[0]!r}")
    return {address: value for address, _, value in pairs}


def is_adapter_model(model: str) -> bool:
    return is_adapter_folder(resolve(model))


def _with_changes(
    model: str, spec_edits: list[str], values: dict[str, str], options: CompareOptions
) -> OpenPair:
    """A model and what is to be changed: its spec, activations, or the precision; the last holds for both."""
    name, changes = short_name(model), [*options.without, *(f"{at}={value}" for at, value in values.items())]
    if spec_edits and changes:
        raise InputError("--set Kind.field=VALUE and --without change the model twice; compare one at a time")
    if not spec_edits and not changes and options.precision is None:
        raise InputError(
            f"{model} is not an adapter, so it has no model before it; name another one, --compare OTHER, or "
            f"what to change: --adapter, --set, --without, --precision"
        )
    before = load(model)
    if spec_edits:
        after, names = load(model, edit=edits(spec_edits)), (name, " ".join(spec_edits))
    elif changes:
        after, names = before, (name, f"{name} without {' '.join(changes)}")
    else:
        after = load(model, precision=options.precision)
        return OpenPair(before, after, (name, f"{name} in {options.precision}"))
    if options.precision is not None:
        for bundle in {id(each): each for each in (before, after)}.values():
            bundle.prepare(options.precision)
    after = after.without(*options.without, set=values) if changes else after
    return OpenPair(before, after, names)


@dataclass(frozen=True)
class _Opener:
    """Opens two models of which one or both may be adapters, all with the same edits."""

    edit: dict[str, str]
    any_base: bool

    def load(self, model: str, adapter: str | None = None) -> Bundle:
        return load(model, edit=self.edit or None, adapter=adapter, any_base=self.any_base)

    def with_base(self, model: str, adapter: str | None) -> OpenPair:
        """An adapter, and the model it is over."""
        after = self.load(model, adapter)
        base = model if adapter is not None else str(base_of_adapter(model))
        return OpenPair(base_of(after), after, (short_name(base), short_name(adapter or model)))

    def two(self, model: str, adapter: str | None, other: str) -> OpenPair:
        names = short_name(adapter or model), short_name(other)
        if (
            adapter is None
            and is_adapter_model(model)
            and not is_adapter_model(other)
            and _is_same(base_of_adapter(model), other)
        ):
            return self.with_base(model, None)  # its own base: before is the base, whichever is named first
        if not is_adapter_model(other):
            return OpenPair(self.load(model, adapter), self.load(other), names)
        if adapter is None and not is_adapter_model(model):
            after = self.load(model, other)
            return OpenPair(base_of(after), after, names)
        before = self.load(model, adapter)
        if _is_same(base_of_adapter(other), before.loaded_from) and not self.edit:
            return OpenPair(before, load(base_of(before), adapter=other, any_base=self.any_base), names)
        return OpenPair(before, self.load(other), names)


def _is_same(one: Path, two: str | Path | None) -> bool:
    return two is not None and one.resolve() == resolve(two).resolve()


def short_name(model: str) -> str:
    """A folder by its last two names, a hub id as it is."""
    path = Path(model)
    return (
        "/".join(path.parts[-2:])
        if path.exists() and len(path.parts) > 1 and path.parts[-2] == "runs"
        else (path.name if path.exists() else model)
    )


def _show_rows(pair: OpenPair, options: CompareOptions, *, json: bool) -> None:
    assert options.file is not None
    rows = read_file_rows(options.file, options.column, options.target_column)
    if rows.note:
        ERR.print(rows.note, markup=False, soft_wrap=True)
    found = compare_rows(
        pair.before, pair.after, rows.texts, rows.contexts,
        max_new_tokens=max(options.new, 1), progress=_progress("row"),
    )  # fmt: skip
    for note in found.notes:
        ERR.print(f"note: {note}", style="yellow", markup=False)
    if json:
        print_json({
            "before": pair.names[0], "after": pair.names[1], "unit": found.unit,
            "mean_change": found.mean_change, "switched": found.switched, "losses": found.losses,
            "rows": [row.to_dict() for row in found.rows],
        })  # fmt: skip
        return
    print_rows(found, pair.names, options.top)


def _progress(what: str) -> Callable[[int, int], None]:
    """Progress on stderr: on a terminal one line that is written over, elsewhere nothing."""

    def show(done: int, of: int) -> None:
        if ERR.is_terminal:
            ERR.print(
                f"{what} {done} of {of}   ", end="\r" if done < of else "\r" + " " * 50 + "\r", style="dim"
            )

    return show
