"""`clearhead generate MODEL "text"`: a translation, a summary or a continuation."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from math import exp
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..errors import InputError
from .console import ERR, OUT, print_json, table, write
from .decoding import NO_OPTIONS, DecodingOptions
from .opening import compile_operators, open_prepared
from .options import (
    NO_ADAPTER,
    AdapterOptions,
    CachePrecisionName,
    DeviceName,
    Keep,
    ModelThreads,
    PrecisionName,
    Set,
    edits,
    lines_of,
)

if TYPE_CHECKING:
    from ..bundle import Bundle
    from ..generate import Answer, TextGenerator
    from ..text import Tokenizer

READ_AHEAD = 128  # lines of a file that are read ahead, so that similar lengths share a batch
TEXT = "text to translate, summarise or continue; - reads stdin line by line and answers each line at once"


def generate(
    model: Annotated[str, Parameter(help="a folder, a Hub id, or a .gguf file")],
    text: Annotated[str | None, Parameter(help=TEXT, allow_leading_hyphen=True)] = None,
    /,
    *,
    file: Annotated[str | None, Parameter(help="process every line of this file")] = None,
    n: Annotated[
        int | None,
        Parameter(
            name=["--n", "--num-return-sequences"],
            help="number of sequences to return, best first; needs --beams or --sample",
        ),
    ] = None,
    source_language: Annotated[
        str | None,
        Parameter(help="language of the text, for NLLB, M2M-100 and mBART: fra_Latn, fr or fr_XX"),
    ] = None,
    target_language: Annotated[
        str | None, Parameter(help="language to translate into, for the same models: deu_Latn, de or de_DE")
    ] = None,
    decoding: DecodingOptions = NO_OPTIONS,
    draft: Annotated[
        str | None, Parameter(help="draft model for speculative decoding; does not change the output")
    ] = None,
    batch: Annotated[int, Parameter(help="with --file: batch size")] = 16,
    alternatives: Annotated[int, Parameter(help="show the n most likely tokens at each position")] = 0,
    show_beams: Annotated[bool, Parameter(negative="", help="show every hypothesis of beam search")] = False,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    precision: PrecisionName = None,
    cache_precision: CachePrecisionName = None,
    keep: Keep = False,
    device: DeviceName = None,
    threads_: ModelThreads = None,
    json: Annotated[bool, Parameter(negative="", help="JSON output, with log-probabilities")] = False,
) -> None:
    """Generate text from a model: a folder, a Hub id or a .gguf file.

    TEXT is the text to translate, summarise or continue; `-` reads stdin line by line. When lines are
    processed, line breaks in the output are written as \\n, so that line k of the output belongs to line k
    of the input.
    """
    from ..bundle import text_generator

    lines = _lines(text, file)
    settings = decoding.settings() | ({} if n is None else {"num_return_sequences": n})
    settings |= {"source_language": source_language, "target_language": target_language}
    bundle = open_prepared(
        model,
        over=over,
        precision=precision,
        cache_precision=cache_precision,
        keep=keep,
        edit=edits(set_),
        device=device,
        threads=threads_,
    )
    draft_model = (
        open_prepared(draft, precision=precision, keep=keep, device=device) if draft is not None else None
    )
    # Before anything is read, so that invalid settings raise an error at once.
    generator = text_generator(bundle, settings, draft_model)
    _print_notes(generator.notes)
    compile_operators()
    if show_beams and generator.settings.num_beams == 1:
        raise InputError("--show-beams shows beam search; add --beams 4")
    plain = not (json or show_beams or alternatives or (n or 1) > 1)
    if text is not None and text != "-":
        if plain:
            _stream(generator, text)
            return
        answer = generator.answers([text], alternatives=alternatives, record=show_beams)[0]
        _print_answer(bundle, answer, show_beams=show_beams, json=json)
        return
    from_stdin = text == "-"
    for answer in _answers(generator, lines, 1 if from_stdin else batch, alternatives, record=show_beams):
        if plain:
            write(answer.text.replace("\n", "\\n") + "\n")
        elif json:  # a document per line, so that they can be read one by one
            print_json(answer.to_dict(), indent=None)
        else:
            _print_answer(bundle, answer, show_beams=show_beams, json=False)


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        ERR.print(f"note: {note}", style="yellow", markup=False)


def _lines(text: str | None, file: str | None) -> Iterable[str]:
    # Behind a bare -- everything is text, whatever it looks like.
    if text is not None and text.startswith("--") and "--" not in sys.argv:
        raise InputError(f"there is no option {text!r}; see clearhead generate --help")
    if (text is None) == (file is None):
        raise InputError('give a text, - for stdin, or --file: clearhead generate MODEL "some text"')
    if file is None:
        return (line.rstrip("\r\n") for line in sys.stdin)
    return lines_of(file)


def _stream(generator: TextGenerator, text: str) -> None:
    """The answer as it is generated; on a terminal also how fast."""
    start, known = time.perf_counter(), len(generator.notes)
    prompt = generator.encode_prompts([text])[0]
    _print_notes(generator.notes[known:])
    for piece in generator.stream_ids(prompt):
        write(piece)
    write("\n")
    if ERR.is_terminal and OUT.is_terminal and (count := generator.streamed):
        seconds = time.perf_counter() - start
        ERR.print(f"{count} tokens, {count / seconds:.0f} per second", style="dim")


def _answers(
    generator: TextGenerator, lines: Iterable[str], batch: int, alternatives: int, *, record: bool
) -> Iterator[Answer]:
    """An answer to every line, in order; with progress on a terminal, if their number is known."""
    from ..generate import Answer

    total = len(lines) if isinstance(lines, list) else None
    columns = (TextColumn("answering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = total is not None and ERR.is_terminal
    with Progress(*columns, console=ERR, disable=not shown, transient=True) as progress:
        task = progress.add_task("", total=total)
        rest = iter(lines)
        while part := list(islice(rest, READ_AHEAD if batch > 1 else 1)):
            texts = [line for line in part if line.strip()]
            answers = generator.answers(texts, batch=batch, alternatives=alternatives, record=record)
            remaining = iter(answers)
            # An empty line has an empty answer: line k of the output still answers line k of the input.
            yield from (
                next(remaining) if line.strip() else Answer(line, "", (), 0.0, "end") for line in part
            )
            progress.advance(task, len(part))


def _print_answer(bundle: Bundle, answer: Answer, *, show_beams: bool, json: bool) -> None:
    assert bundle.tokenizer is not None
    if json:
        print_json(answer.to_dict())
        return
    if show_beams:
        _print_beams(answer, bundle.tokenizer)
    answers = (answer, *answer.others)
    for i, each in enumerate(answers):
        line = each.text if len(answers) == 1 else f"{i + 1}  {each.score:8.4f}  {each.text}"
        OUT.print(line, markup=False)
        if any(token.alternatives for token in each.tokens):
            _print_alternatives(each, bundle.tokenizer)


def _print_alternatives(answer: Answer, tokenizer: Tokenizer) -> None:
    listing = table("token", "chance", "or else", right=(1,), no_wrap=(0,))
    for token in answer.tokens:
        others = "  ".join(
            f"{c.text!r} {_percent(c.logprob)}" for c in token.alternatives if c.id != token.id
        )
        shown = repr(token.text) if token.text else tokenizer.decode([token.id], specials=True)
        listing.add_row(Text(shown), _percent(token.logprob), Text(others))
    OUT.print(listing)


def _percent(logprob: float) -> str:
    return f"{100 * exp(logprob):.1f}%"


def _print_beams(answer: Answer, tokenizer: Tokenizer) -> None:
    """Every step of beam search: what was kept, finished or pruned, with the text so far."""
    ids: dict[int, list[int]] = {-1: []}
    listing = table("step", "score", "", "hypothesis", right=(0, 1), no_wrap=(0, 1, 2))
    styles = {"kept": "", "finished": "bold green", "pruned": "bright_black"}
    for node in answer.tree:
        ids[node.id] = [*ids[node.parent], node.token]
        words = tokenizer.decode(ids[node.id], specials=True)
        listing.add_row(
            str(node.step + 1), f"{node.score:.3f}", node.fate, Text(words), style=styles[node.fate]
        )
    OUT.print(listing)
