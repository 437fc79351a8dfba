"""Rows that a language model learns answers from: prompts or chats in; ids out, and where the answers are.

The loss counts answers only, each with the token that ends it. Prompts and chats are rendered by the
tokenizer's own chat template; without one, a prompt and its completion stand on two lines, and a tokenizer
that reads chats is given a plain template.

A chat is one example as long as the ids before each answer are those that generation is fed. Where they are
not (tokens that reach over a joint, templates that strip reasoning from earlier turns), an answer begins an
example of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..text import PLAIN_TEMPLATE, Tokenizer
from .answer_ends import AnswerEnds
from .answers import ChatAnswer, chat_answers, encode_answers
from .source import Row
from .template_gaps import fill_template_gaps

PROMPT_COLUMNS = {"prompt": ("prompt", "completion"), "pair": ("src", "tgt")}
CHATS_AT_ONCE = 1000  # rendered and encoded at a time


class CompletionExample(NamedTuple):
    """Ids, and the answers in them that are trained: where each begins, and where it has ended."""

    ids: list[int]
    answers: list[tuple[int, int]]
    row: int  # which of the rows it was made from

    @property
    def flags(self) -> list[int]:
        """1 for each id that is trained."""
        flags = [0] * len(self.ids)
        for start, end in self.answers:
            flags[start:end] = [1] * (end - start)
        return flags


@dataclass(frozen=True)
class FittedExamples:
    """Examples of at most a length. `shortened` rows lost their last answers, `left_out` rows all of them."""

    examples: list[CompletionExample]
    shortened: int
    left_out: int


@dataclass(frozen=True)
class EncodedCompletions:
    examples: list[CompletionExample]
    stops: tuple[int, ...]  # those given, and those with which the template ends answers
    notes: tuple[str, ...]


def encode_completions(
    form: str, rows: Sequence[Row], tokenizer: Tokenizer, stops: Sequence[int]
) -> EncodedCompletions:
    """`form` is prompt, pair or messages. `stops` are the ids at which generation stops; where there is no
    template, the first one ends each completion."""
    if form == "messages" and tokenizer.chat_template is None:
        set_plain_template(tokenizer, stops)
    ends, examples, notes = AnswerEnds(tokenizer, stops), list[CompletionExample](), list[str]()
    chats = rows if form == "messages" else _as_chats(rows, *PROMPT_COLUMNS[form])
    if tokenizer.chat_template is not None:
        chats, notes = fill_template_gaps(tokenizer, chats)
    for at in range(0, len(chats), CHATS_AT_ONCE):
        chunk = chats[at : at + CHATS_AT_ONCE]
        if tokenizer.chat_template is None:
            answers = _plain_answers(tokenizer, chunk, stops[0])
        else:
            answers = chat_answers(tokenizer, chunk)
        examples += _as_examples(ends.end(answers, chunk), at)
    if ends.cut_answers:
        notes.append(f"answers with an end token before their end, trained up to it: {ends.cut_answers:,}")
    return EncodedCompletions(examples, tuple(ends.stops), tuple(notes))


def set_plain_template(tokenizer: Tokenizer, stops: Sequence[int]) -> None:
    """Give a tokenizer the plain template, with the special tokens that it puts before a text."""
    names = {special.id: role for role in ("bos", "cls") if (special := getattr(tokenizer, role)) is not None}
    before = [
        f"{{{{ {names[token]}_token }}}}" if token in names else tokenizer.text_of(token)
        for token in _leading_ids(tokenizer)
    ]
    template = PLAIN_TEMPLATE
    if tokenizer.eos is None and stops:  # only the model's config knows the end token
        template = template.replace("{{ eos_token }}", tokenizer.text_of(stops[0]))
    tokenizer.set_chat_template("".join(before) + template)


def _leading_ids(tokenizer: Tokenizer) -> list[int]:
    """The special tokens that the tokenizer puts before a text, such as <s>."""
    pieces = tokenizer.encode("a").tokens
    real = next((i for i, piece in enumerate(pieces) if piece.side is not None), 0)
    return [piece.id for piece in pieces[:real]]


def _as_chats(rows: Sequence[Row], prompt: str, completion: str) -> list[Row]:
    return [
        {
            "messages": [
                {"role": "user", "content": row[prompt]},
                {"role": "assistant", "content": row[completion]},
            ]
        }
        for row in rows
    ]


def _plain_answers(tokenizer: Tokenizer, chats: Sequence[Row], end: int) -> list[ChatAnswer]:
    """Without a template: the prompt on a line of its own, behind what the tokenizer puts before texts."""
    texts = [[message["content"] for message in chat["messages"]] for chat in chats]
    prompts = [f"{prompt}\n" for prompt, _ in texts]
    answers = encode_answers(
        tokenizer, [(i, 1) for i in range(len(chats))], prompts, [text for _, text in texts]
    )
    start = _leading_ids(tokenizer)
    return [answer._replace(context=[*start, *answer.context], ids=[*answer.ids, end]) for answer in answers]


def _as_examples(answers: Iterable[ChatAnswer], first: int) -> list[CompletionExample]:
    """Answers of a chat are in one example while its ids so far are what generation is fed for the next."""
    examples: list[CompletionExample] = []
    for answer in answers:
        last, size = examples[-1] if examples else None, len(answer.context)
        ids, place = [*answer.context, *answer.ids], (size, size + len(answer.ids))
        row = first + answer.row
        if last is not None and last.row == row and answer.context[: len(last.ids)] == last.ids:
            examples[-1] = CompletionExample(ids, [*last.answers, place], row)
        else:
            examples.append(CompletionExample(ids, [place], row))
    return examples


def fit_examples(examples: Sequence[CompletionExample], length: int) -> FittedExamples:
    """Examples that are too long end with the last whole answer that fits; never in the middle of one."""
    kept, before, after = [], Counter[int](), Counter[int]()
    for example in examples:
        answers = [(start, end) for start, end in example.answers if end <= length]
        before[example.row] += len(example.answers)
        if answers:
            kept.append(CompletionExample(example.ids[: answers[-1][1]], answers, example.row))
            after[example.row] += len(answers)
    shortened = sum(0 < after[row] < count for row, count in before.items())
    return FittedExamples(kept, shortened, sum(not after[row] for row in before))
