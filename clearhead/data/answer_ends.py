"""The end of an answer: answers as a template writes them in; the same, each up to its end token, out.

A model learns to stop only if the token at which generation stops is trained. That token is, in this order:
one of the model's own stop tokens in the answer; a special token with which the template ends it, which then
becomes a stop token; a stop token with which the template begins the next turn, as GLM's do.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import DataError, LoadError, quoted
from ..text import Tokenizer
from .answers import ChatAnswer, messages_for_template, render_prefixes
from .source import Row

NO_ENDS = ("unk", "bos", "mask", "cls")  # special tokens that may stand at the end of an answer by chance


class AnswerEnds:
    """`stops` are the tokens at which generation stops; those of the template join them."""

    def __init__(self, tokenizer: Tokenizer, stops: Sequence[int]) -> None:
        self.tokenizer, self.stops = tokenizer, list(stops)
        self.cut_answers = 0  # how many hold an end token before their end
        roles = (getattr(tokenizer, role) for role in NO_ENDS)
        self._never = {special.id for special in roles if special is not None} - set(stops)

    def end(self, answers: Sequence[ChatAnswer], chats: Sequence[Row]) -> list[ChatAnswer]:
        """Every answer up to its end token, which is in it once."""
        ended = [self._up_to_end(answer) for answer in answers]
        open_ = [i for i, answer in enumerate(ended) if answer is None]
        followers = self._next_turns([answers[i] for i in open_], chats)
        for i, text in zip(open_, followers, strict=True):
            stop = next((stop for stop in self.stops if self._begins_with(text, stop)), None)
            if stop is None:
                raise self._no_end(answers[i])
            ended[i] = answers[i]._replace(ids=[*answers[i].ids, stop])
        return [answer for answer in ended if answer is not None]

    def _up_to_end(self, answer: ChatAnswer) -> ChatAnswer | None:
        for i, token in enumerate(answer.ids):
            if token in self.stops:
                rest = self.tokenizer.decode(answer.ids[i + 1 :])
                self.cut_answers += bool(rest.strip())
                return answer._replace(ids=answer.ids[: i + 1])
        last = len(answer.ids) - 1
        while last >= 0 and not self.tokenizer.decode([answer.ids[last]], specials=True).strip():
            last -= 1
        token = answer.ids[last] if last >= 0 else -1
        if token not in self.tokenizer.specials - self._never:
            return None
        self.stops.append(token)
        return answer._replace(ids=answer.ids[: last + 1])

    def _begins_with(self, text: str, stop: int) -> bool:
        name = self.tokenizer.text_of(stop)
        return bool(name) and text.startswith(name)

    def _next_turns(self, answers: Sequence[ChatAnswer], chats: Sequence[Row]) -> list[str]:
        """What the template writes after each answer, once another message follows it."""
        if not answers or self.tokenizer.chat_template is None:
            return [""] * len(answers)
        longer = []
        for answer in answers:
            messages = [*messages_for_template(chats[answer.row]), {"role": "user", "content": "a"}]
            more = {**chats[answer.row], "messages": messages[: answer.place + 2]}
            longer += [(more, answer.place, True), (more, answer.place + 2, False)]
        try:
            texts = render_prefixes(self.tokenizer, longer)
        except LoadError:  # the template allows no such message
            return [""] * len(answers)
        return [
            _text_after(answer, prompt, text)
            for answer, prompt, text in zip(answers, texts[::2], texts[1::2], strict=True)
        ]

    def _no_end(self, answer: ChatAnswer) -> DataError:
        name = "" if self.tokenizer.eos is not None else "name an eos_token in tokenizer_config.json and "
        return DataError(
            f"the chat template ends answers with {quoted(answer.text[-12:])} and no end token, so the model "
            f"would not learn to stop: {name}add {{{{ eos_token }}}} after the assistant's content in "
            f"chat_template.jinja, or use prompt and completion columns, a tokenizer without a template, and "
            f"--data.template auto"
        )


def _text_after(answer: ChatAnswer, prompt: str, text: str) -> str:
    """Of a chat that goes on after an answer, what follows that answer."""
    if text.startswith(prompt + answer.text):
        return text[len(prompt) + len(answer.text) :]
    shown = answer.text.strip()  # reasoning may be left out by now
    shown = shown.rpartition("</think>")[2].strip() or shown
    same = next(
        (i for i, (one, two) in enumerate(zip(prompt, text, strict=False)) if one != two), len(prompt)
    )
    start = text.find(shown, same)
    return text[start + len(shown) :] if start >= 0 else ""
