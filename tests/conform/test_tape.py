"""Laws of the tape: what is played from it is what the model would have said, bit for bit.

`conftest` makes a tape worth its while after two steps, so that all laws of decoding are also laws of it.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import zoo
from torch import Tensor
from zoo import DECODERS, PAIRS

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.generate import Beam, Greedy, Prompt, generate, player
from clearhead.generate.search import Strategy
from clearhead.generate.speaker import speaker
from clearhead.generate.tape import Watched, tape
from clearhead.nn import PairModel
from clearhead.nn.cache import Cache
from clearhead.tune.quantize import KINDS, quantize

NEW = 24
CORE = {f"decoder/{n}": m for n, m in DECODERS.items()} | {f"pair/{n}": m for n, m in PAIRS.items()}
PLAIN = cn.Single(
    tower=cn.Tower(
        width=16,
        depth=2,
        embed=cn.Tokens(vocab=31),
        block=cn.Block(attention=cn.Attention(heads=2), feedforward=cn.MLP(hidden=16)),
        causal=True,
    ),
    head=cn.TokenHead(vocab=31),
)


def is_steady(spec: cn.Single | cn.Pair) -> bool:
    """Whether no layer decides by the length of the text, or keeps a state, another tensor each time."""
    tower = spec.tower if isinstance(spec, cn.Single) else spec.decoder
    mixers = [mixer for block in tower.pattern for mixer in (block.attention, block.cross) if mixer]
    return all(
        isinstance(mixer, cn.Attention) and type(mixer.kernel) is cn.Softmax and mixer.window is None
        for mixer in mixers
    )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """The ids of every step that was played."""
    told: list[Tensor] = []

    def listened(first: Watched, second: Watched) -> Callable[[Tensor, int], Tensor] | None:
        play = tape(first, second)
        if play is None:
            return None

        def heard(new: Tensor, steps: int) -> Tensor:
            told.append(new)
            return play(new, steps)

        return heard

    monkeypatch.setattr(player, "tape", listened)
    yield told


def said(model: Any, strategy: Strategy, limit: int | list[int]) -> list[Any]:
    key = torch.Generator().manual_seed(4)
    prompt = torch.randint(3, 11, (3, 5), generator=key)
    start = torch.full((3, 1), 2) if isinstance(model, PairModel) else None
    answers = generate(model, Prompt(prompt, None, start), strategy=strategy, limit=limit).finish()
    return [(answer.ids, answer.logprobs, answer.score) for each in answers for answer in each]


def plainly(model: Any, strategy: Strategy, limit: int | list[int]) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(player, "TRIES", 0)
        return said(model, strategy, limit)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, count=3)], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", CORE)
def test_what_is_played_is_what_would_have_been_said(
    name: str, strategy: Strategy, played: list[Tensor]
) -> None:
    """Rows leave one by one: a tape ends, and another one begins."""
    limit = [9, NEW, 15]
    model = CORE[name].build(seed=3)
    plain = plainly(model, strategy, limit)
    assert not played
    assert said(model, strategy, limit) == plain
    assert bool(played) == is_steady(CORE[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("spec", [PLAIN, zoo.pair()], ids=["decoder", "pair"])
def test_int8_is_played_too(spec: cn.Single | cn.Pair, kind: str, played: list[Tensor]) -> None:
    model = quantize(spec.build(seed=3), kind).eval()
    assert said(model, Greedy(), NEW) == plainly(model, Greedy(), NEW)
    assert played


@pytest.mark.parametrize("left", [3, 200], ids=["short", "longer than the run"])
def test_a_window_is_played_where_it_never_closes(left: int, played: list[Tensor]) -> None:
    model = PLAIN.edit(cn.Attention, window=(left, 0)).build(seed=3)
    assert said(model, Greedy(), NEW) == plainly(model, Greedy(), NEW)
    assert bool(played) == (left > NEW)


def test_who_listens_hears_every_token(played: list[Tensor]) -> None:
    model, heard = PLAIN.build(seed=3), []
    model.tower.blocks[0].register_forward_hook(lambda *_: heard.append(1))
    said(model, Greedy(), NEW)
    assert len(heard) == NEW and not played


def test_who_listens_to_all_modules_hears_every_token(played: list[Tensor]) -> None:
    model, heard = PLAIN.build(seed=3), []
    ear = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: heard.append(1) if module is model.tower.norm or module is model.tower else None
    )
    try:
        said(model, Greedy(), NEW)
    finally:
        ear.remove()
    assert len(heard) == NEW and not played


@torch.inference_mode()
def test_rows_that_change_places_take_their_sources_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as before, in the same tensors; but what they look back at is another one."""
    model, answers = zoo.pair().build(seed=3), []
    prompt = Prompt(torch.tensor([[3, 4, 5], [6, 7, 8]]), None, torch.tensor([[2], [2]]))
    for tries in (0, player.TRIES):
        monkeypatch.setattr(player, "TRIES", tries)
        voice = speaker(model, prompt, room=9)
        voice.hear()
        for token in range(3, 7):
            voice.say(torch.tensor([[token], [token]]))
        voice.keep(torch.tensor([1, 0]))
        answers.append([voice.say(torch.tensor([[token], [token]])) for token in range(4)])
    assert all(torch.equal(one, two) for one, two in zip(*answers, strict=True))


def test_padding_that_grows_is_not_played(played: list[Tensor]) -> None:
    model = PLAIN.build(seed=3)
    prompt = torch.tensor([[3, 4, 5], [0, 6, 7]])
    generate(model, Prompt(prompt, prompt > 0), limit=NEW).finish()
    assert not played


def test_few_tokens_are_not_worth_a_tape(played: list[Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "WORTH", 16)
    model = PLAIN.build(seed=3)
    said(model, Greedy(), 16)
    assert not played
    said(model, Greedy(), 30)
    assert len(played) == 30 - 3  # the first token is the prompt's, two are watched


def test_too_long_is_still_one_sentence() -> None:
    model = ch.build("gpt2", n_embd=16, n_head=2, n_layer=1, vocab_size=30, n_positions=20).model
    with pytest.raises(InputError, match="longer than the 20 learned positions"):
        said(model, Greedy(), 30)


def test_nothing_of_a_run_is_kept(played: list[Tensor]) -> None:
    model = PLAIN.build(seed=3)
    run = generate(model, Prompt(torch.tensor([[3, 4]])), limit=NEW)
    run.finish()
    room = weakref.ref(next(x for x in gc.get_objects() if isinstance(x, Cache)))
    del run
    played.clear()
    gc.collect()
    assert room() is None


# --- two steps, watched ---


def two(step: Callable[[Tensor, int], Tensor], *, more: int = 1) -> Callable[[Tensor, int], Tensor] | None:
    watched = []
    for number in (5, 5 + more):
        watched.append(Watched(torch.tensor([[number]])))
        with watched[-1] as now:
            now.answer = step(now.ids, number)
    return tape(*watched)


def test_numbers_grow_and_shrink_and_checks_are_left_out() -> None:
    table, calls = torch.arange(40.0), []

    def step(ids: Tensor, n: int) -> Tensor:
        calls.append(n)
        assert not bool((ids + torch.tensor(float(n)).sqrt() < 0).any())  # nobody needs it
        x = table.narrow(0, n, 20 - n)[2:, None] + ids
        x[0] = 7.0
        low, high = x.aminmax()
        return x.mul_(2).sub(low).sum() + high

    play = two(step)
    assert play is not None
    for n in range(4):
        ids = torch.tensor([[3 * n]])
        assert torch.equal(play(ids, n), step(ids, 6 + n))
    assert calls == [5, 6, 6, 7, 8, 9]


EYES = torch.eye(2), torch.eye(2)
UNLIKE: dict[str, Callable[[Tensor, int], Tensor]] = {
    "another tensor": lambda ids, n: ids + EYES[n - 5],
    "another number": lambda ids, n: ids + n * 2,
    "another fraction": lambda ids, n: ids + n * 0.5,
    "another call": lambda ids, n: ids.cos() if n == 5 else ids.sin(),
    "another shape of call": lambda ids, n: ids.sum(0) if n == 5 else ids.sum(dim=0),
    "one call more": lambda ids, n: ids + 1 if n == 5 else ids + 1 + 1,
    "longer": lambda ids, n: ids.expand([1] * (n - 3)),
    "no call": lambda ids, n: torch.zeros(1) if n == 5 else ids,
    "true and one": lambda ids, n: ids.sum(0, keepdim=n == 5),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_steps_that_are_not_alike_give_no_tape(name: str) -> None:
    assert two(UNLIKE[name]) is None
