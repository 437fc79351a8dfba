"""`clearhead predict MODEL TEXT`: the prediction of a model for a text; `-` reads one text per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.cells import cell_len
from rich.markup import escape
from rich.text import Text

from .console import ERR, OUT, print_json
from .options import ModelName, Quantize, Set, edits, texts_of

if TYPE_CHECKING:
    from ..bundle import Guess, Prediction

TAG_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")
BAR = 24  # characters of a bar that is full


def predict(
    model: ModelName,
    text: Annotated[str, Parameter(help="the text; - reads stdin, one per line", allow_leading_hyphen=True)],
    *,
    context: Annotated[
        str | None, Parameter(help="context for question answering, or the second text of a pair")
    ] = None,
    top: Annotated[int, Parameter(help="number of labels, answers or words to show")] = 5,
    set_: Set = None,
    quantize: Quantize = None,
    json: Annotated[bool, Parameter(negative="", help="JSON output, one line per text")] = False,
) -> None:
    """Predict labels, tags, answers or masked words, depending on the model."""
    from ..bundle import load

    with ERR.status("loading"):
        bundle = load(model, quantize=quantize, edit=edits(set_))
    for each in texts_of(text):
        prediction = bundle.predict(each, context, top=top)
        for note in prediction.notes:
            ERR.print(note, markup=False)
        if json:
            print_json(prediction.to_dict(), indent=None if text == "-" else 2)
        else:
            print_prediction(prediction, alone=text != "-")


def print_prediction(prediction: Prediction, *, alone: bool) -> None:
    if prediction.kind == "tags":
        OUT.print(tagged(prediction))
        return
    if not alone:
        OUT.print(escape(prediction.text), style="dim")
    if prediction.kind == "answers":
        for guess in prediction.guesses:
            OUT.print(f"{_percent(guess)}  [bold]{escape(guess.text)}[/]  [dim]{guess.start}-{guess.end}[/]")
        if prediction.guesses:
            OUT.print(highlighted(prediction.text, prediction.guesses[0]))
        return
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
