"""`clearhead predict MODEL TEXT`: the prediction of a model for a text; `-` reads one text per line.

`--file` predicts every row of a file: one line of output each, or one line of JSON with --json.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.cells import cell_len
from rich.markup import escape
from rich.text import Text

from ..errors import InputError
from .console import ERR, OUT, print_json, write
from .file_rows import FileRows, read_file_rows
from .opening import open_prepared
from .options import (
    NO_ADAPTER,
    AdapterOptions,
    DeviceName,
    Keep,
    ModelName,
    ModelThreads,
    PrecisionName,
    Set,
    edits,
    texts_of,
)

if TYPE_CHECKING:
    from ..bundle import Bundle, Guess, Prediction

TAG_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
BAR = 24  # characters of a bar that is full
ROWS_AT_ONCE = 512  # rows of a file between two lines of progress; rows of similar length share a batch
LIKELY = 0.5  # labels of a multi-label model that are printed


def predict(
    model: ModelName,
    text: Annotated[
        str | None,
        Parameter(help="the text; - reads stdin, one per line", allow_leading_hyphen=True),
    ] = None,
    *,
    context: Annotated[
        str | None, Parameter(help="context for question answering, or the second text of a pair")
    ] = None,
    choice: Annotated[
        list[str] | None,
        Parameter(name="--choice", negative="", help="an answer to choose from; give it once for each"),
    ] = None,
    file: Annotated[
        str | None, Parameter(help="predict every row of a file: lines, .tsv .csv .jsonl .parquet")
    ] = None,
    column: Annotated[
        str | None, Parameter(help="column of the file with the text (default: detected)")
    ] = None,
    context_column: Annotated[str | None, Parameter(help="column of the file with the context")] = None,
    top: Annotated[int, Parameter(help="number of labels, answers or words to show")] = 5,
    batch_size: Annotated[
        int | None, Parameter(help="rows per batch (default: by their lengths)", show_default=False)
    ] = None,
    over: AdapterOptions = NO_ADAPTER,
    set_: Set = None,
    precision: PrecisionName = None,
    keep: Keep = False,
    device: DeviceName = None,
    threads_: ModelThreads = None,
    json: Annotated[bool, Parameter(negative="", help="JSON output, one line per text")] = False,
) -> None:
    """Predict labels, scores, tags, answers, choices or masked words, depending on the model."""
    if (text is None) == (file is None):
        raise InputError(
            "give a text, or --file FILE for the rows of a file" + (": not both" if text else "")
        )
    if file is None and (column or context_column):
        raise InputError("--column and --context-column are for --file")
    if file is not None and (context or choice):
        raise InputError("--context and --choice are for one text; a file has columns for them")
    bundle = open_prepared(
        model, over=over, precision=precision, keep=keep, edit=edits(set_), device=device, threads=threads_
    )
    if file is not None:
        rows = read_file_rows(file, column, context_column, choices=bundle.task == "choice")
        _predict_file(bundle, file, rows, top, batch_size, json=json)
        return
    for each in texts_of(text or ""):
        prediction = bundle.predict(each, context, choices=choice, top=top, truncate=True)
        for note in prediction.notes:
            ERR.print(note, markup=False)
        if json:
            print_json(prediction.to_dict(), indent=None if text == "-" else 2)
        else:
            print_prediction(prediction, alone=text != "-")


def _predict_file(
    bundle: Bundle, file: str, rows: FileRows, top: int, batch_size: int | None, *, json: bool
) -> None:
    if rows.note:
        ERR.print(rows.note, markup=False, soft_wrap=True)
    several = bundle.config.get("problem_type") == "multi_label_classification"
    cut = count = 0
    for number, prediction in _predictions(bundle, rows, top, batch_size):
        count, cut = count + 1, cut + (prediction.cut > 0)
        if json:
            print_json({"row": number + 1, **prediction.to_dict()}, indent=None)
        else:
            write(row_line(prediction, rows.texts[number], several=several) + "\n")
    if not count:
        raise InputError(f"{file} has no text in it; expected at least one row")
    if count < len(rows.texts):
        ERR.print(f"{len(rows.texts) - count:,} rows without text left out")
    if cut:
        ERR.print(f"{cut:,} of {count:,} texts were longer than the model reads and were cut")


def _predictions(
    bundle: Bundle, rows: FileRows, top: int, batch_size: int | None
) -> Iterator[tuple[int, Prediction]]:
    """The number of a row and its prediction; rows without text are left out."""
    numbers = [i for i, text in enumerate(rows.texts) if text.strip()]
    for start in range(0, len(numbers), ROWS_AT_ONCE):
        chunk = numbers[start : start + ROWS_AT_ONCE]
        with ERR.status(f"predicting {start:,} of {len(numbers):,}"):
            found = bundle.predict(
                [rows.texts[i] for i in chunk],
                None if rows.contexts is None else [rows.contexts[i] for i in chunk],
                choices=None if rows.choices is None else [rows.choices[i] for i in chunk],
                top=top,
                batch_size=batch_size,
                truncate=True,
            )
        yield from zip(chunk, found, strict=True)


def row_line(prediction: Prediction, text: str, *, several: bool) -> str:
    """The prediction and the text, with a tab between: one line of a file."""
    if prediction.kind == "tags":
        return tagged(prediction).plain
    shown = " ".join(text.split())
    if prediction.kind == "score":
        return "\t".join([*(f"{score:.4f}" for score in prediction.scores.values()), shown])
    if prediction.kind == "words":  # the best word of each place
        best = {guess.start: guess.text for guess in reversed(prediction.guesses)}
        return f"{' '.join(best[start] for start in sorted(best))}\t{shown}"
    if several:
        likely = [guess.text for guess in prediction.guesses if guess.probability >= LIKELY]
        return f"{', '.join(likely)}\t{shown}"
    best_guess = prediction.guesses[0] if prediction.guesses else None
    answer = " ".join(best_guess.text.split()) if best_guess else ""
    return f"{answer}\t{best_guess.probability if best_guess else 0:.4f}\t{shown}"


def print_prediction(prediction: Prediction, *, alone: bool) -> None:
    if prediction.kind == "tags":
        OUT.print(tagged(prediction))
        return
    if not alone:
        OUT.print(escape(prediction.text), style="dim")
    if prediction.kind == "score":
        for name, score in prediction.scores.items():
            OUT.print(f"{score:9.4f}  {escape(name)}")
        return
    if prediction.kind == "answers":
        for guess in prediction.guesses:
            OUT.print(f"{_percent(guess)}  [bold]{escape(guess.text)}[/]  [dim]{guess.start}-{guess.end}[/]")
        if prediction.guesses:
            OUT.print(highlighted(prediction.text, prediction.guesses[0]))
        return
    _print_bars(prediction)


def _print_bars(prediction: Prediction) -> None:
    """Labels, choices, or words for each place, with a bar for the probability."""
    places = {guess.start: guess.end for guess in prediction.guesses}
    for start in places:
        guesses = [guess for guess in prediction.guesses if guess.start == start]
        if len(places) > 1:
            OUT.print(f"[dim]{escape(prediction.text[start : places[start]])} at {start}[/]")
        width = max(cell_len(guess.text) for guess in guesses)  # a Chinese character takes two cells
        for guess in guesses:
            bar, gap = "█" * round(BAR * guess.probability), " " * (width - cell_len(guess.text))
            OUT.print(f"{_percent(guess)}  {escape(guess.text)}{gap}  [cyan]{bar}[/]")


def highlighted(context: str, answer: Guess) -> Text:
    """The context with the best answer in colour, or in brackets without colours."""
    line = Text(context[: answer.start])
    if OUT.is_terminal:
        line.append(context[answer.start : answer.end], style="black on cyan")
    else:
        line.append(f"[{context[answer.start : answer.end]}]")
    return line.append(context[answer.end :])


def tagged(prediction: Prediction) -> Text:
    """The text on one line, what was tagged in colour, or in brackets where there are no colours."""
    line, at = Text(), 0
    names = sorted({entity.text for entity in prediction.entities})
    for entity in prediction.entities:
        line.append(prediction.text[at : entity.start])
        covered, at = prediction.text[entity.start : entity.end], entity.end
        # The space before a word belongs to its token, and is not worth a colour.
        line.append(covered[: len(covered) - len(covered.lstrip())])
        if OUT.is_terminal:
            colour = TAG_COLOURS[names.index(entity.text) % len(TAG_COLOURS)]
            line.append(f" {covered.strip()} ", style=f"black on {colour}")
            line.append(entity.text, style=f"bold {colour}")
        else:
            line.append(f"[{covered.strip()}|{entity.text}]")
    line.append(prediction.text[at:])
    return line


def _percent(guess: Guess) -> str:
    return f"{100 * guess.probability:5.1f} %"
