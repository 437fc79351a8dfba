"""Laws of replay: a replayed step gives what the model gives, bit for bit; and it can be switched off."""

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import zoo
from replaying import AT_ONCE, MODES, OFF, replayed
from torch import Tensor
from zoo import DECODERS, PAIRS

import clearhead as ch
from clearhead import nn as cn
from clearhead.engine import PRECISIONS, prepare_model
from clearhead.errors import InputError
from clearhead.generate import Beam, DecoderRunner, Greedy, Prompt, Strategy, generate, loop
from clearhead.generate.replay import fusion, replayer
from clearhead.generate.replay.capture import RecordedStep, compile_replay
from clearhead.nn import EncoderDecoderModel
from clearhead.nn.cache import Cache
from clearhead.nn.stack import Stack

NEW = 24
CORE = {f"decoder/{n}": m for n, m in DECODERS.items()} | {f"pair/{n}": m for n, m in PAIRS.items()}
PLAIN = cn.SingleStack(
    tower=cn.Tower(
        width=16,
        depth=2,
        embed=cn.Tokens(vocab=31),
        block=cn.Block(attention=cn.Attention(heads=2), feedforward=cn.MLP(hidden=16)),
        causal=True,
    ),
    head=cn.TokenHead(vocab=31),
)


def is_replayable(spec: cn.SingleStack | cn.EncoderDecoder) -> bool:
    """Whether no layer changes its calls with the length, or keeps a state, a new tensor each time."""
    tower = spec.tower if isinstance(spec, cn.SingleStack) else spec.decoder
    mixers = [mixer for block in tower.pattern for mixer in (block.attention, block.cross) if mixer]
    softmax = all(isinstance(mixer, cn.Attention) and type(mixer.kernel) is cn.Softmax for mixer in mixers)
    return softmax and not any(isinstance(block.feedforward, cn.Experts) for block in tower.pattern)


@pytest.fixture
def replayed_ids(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The ids of every step that was replayed."""
    seen: list[Tensor] = []

    def watched(
        first: RecordedStep, second: RecordedStep, *, fuse: bool
    ) -> Callable[[Tensor, int], Tensor] | None:
        replay = compile_replay(first, second, fuse=fuse)
        if replay is None:
            return None

        def noted(new: Tensor, steps: int) -> Tensor:
            seen.append(new)
            return replay(new, steps)

        return noted

    monkeypatch.setattr(replayer, "compile_replay", watched)
    return seen


def generated(model: Any, strategy: Strategy, limit: int | list[int], **how: Any) -> list[Any]:
    key = torch.Generator().manual_seed(4)
    prompt = torch.randint(3, 11, (3, 5), generator=key)
    start = torch.full((3, 1), 2) if isinstance(model, EncoderDecoderModel) else None
    answers = generate(model, Prompt(prompt, None, start), strategy=strategy, limit=limit, **how).finish()
    return [(answer.ids, answer.logprobs, answer.score) for each in answers for answer in each]


def without_replay(model: Any, strategy: Strategy, limit: int | list[int]) -> list[Any]:
    return generated(model, strategy, limit, replay=False)


@pytest.fixture
def forwards(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the inputs of every tower, call by call. A hook would switch replay off."""
    seen: list[int] = []
    forward = Stack.forward

    def noted(self: Stack, inputs: Tensor, **how: Any) -> Any:
        seen.append(inputs.shape[1])
        return forward(self, inputs, **how)

    monkeypatch.setattr(Stack, "forward", noted)
    return seen


# --- the way of one token ---


@pytest.mark.parametrize("spec", [PLAIN, zoo.pair()], ids=["decoder", "pair"])
def test_at_most_two_frames_lie_between_the_loop_and_the_model(
    spec: cn.SingleStack | cn.EncoderDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """loop -> runner.step -> model; torch's own frames around a module do not count."""
    model, paths = spec.build(seed=3), []
    forward = Stack.forward

    def noted(self: Stack, inputs: Tensor, **how: Any) -> Any:
        frame, path = sys._getframe(1), []
        while frame is not None and frame.f_code is not loop.Decoding._steps.__code__:
            if "clearhead" in frame.f_globals["__name__"]:
                path.append((frame.f_globals["__name__"], frame.f_code.co_name))
            frame = frame.f_back
        if frame is not None:  # the encoder runs before the first step
            paths.append(path[::-1])
        return forward(self, inputs, **how)

    monkeypatch.setattr(Stack, "forward", noted)
    generated(model, Greedy(), NEW, replay=False)
    assert len(paths) == NEW
    for path in paths:
        before = [name for module, name in path if not module.startswith("clearhead.nn")]
        assert len(before) <= 2 and before[0] in ("prefill", "step"), path
        assert len(path) <= 3, "the model itself hands its input straight to the tower"


@pytest.mark.parametrize("how", ["argument", "environment"])
@pytest.mark.parametrize("spec", [PLAIN, zoo.pair()], ids=["decoder", "pair"])
def test_without_replay_every_token_runs_the_model(
    spec: cn.SingleStack | cn.EncoderDecoder, how: str, forwards: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, encoder = spec.build(seed=3), int(isinstance(spec, cn.EncoderDecoder))
    if how == "environment":
        monkeypatch.setenv("CLEARHEAD_REPLAY", "0")
    generated(model, Greedy(), NEW, replay=how == "environment")
    assert len(forwards) == NEW + encoder and set(forwards[-NEW + 1 :]) == {1}


@pytest.mark.parametrize("mode", MODES)
def test_a_long_run_is_the_same_in_all_modes_and_replayed_in_two(
    mode: str, replayed_ids: list[Tensor]
) -> None:
    """Enough tokens that replay pays off as shipped."""
    model = PLAIN.build(seed=3)
    assert replayer.MIN_STEPS < NEW
    with replayed(mode):
        assert generated(model, Greedy(), NEW) == without_replay(model, Greedy(), NEW)
    # The first token is the prompt's, two steps are recorded.
    assert len(replayed_ids) == (0 if mode == OFF else NEW - 3)


# --- replayed steps are the model's steps ---


@pytest.mark.parametrize("strategy", [Greedy(), Beam(3, count=3)], ids=["greedy", "beams"])
@pytest.mark.parametrize("name", CORE)
def test_what_is_replayed_is_what_the_model_gives(
    name: str, strategy: Strategy, replayed_ids: list[Tensor]
) -> None:
    """Rows leave one by one: a captured step is discarded, and another one is captured."""
    limit = [9, NEW, 15]
    model = CORE[name].build(seed=3)
    plain = without_replay(model, strategy, limit)
    assert not replayed_ids
    with replayed(AT_ONCE):
        assert generated(model, strategy, limit) == plain
    assert bool(replayed_ids) == is_replayable(CORE[name])


@pytest.mark.parametrize("kind", PRECISIONS)
@pytest.mark.parametrize("spec", [PLAIN, zoo.pair()], ids=["decoder", "pair"])
def test_prepared_models_are_replayed_too(
    spec: cn.SingleStack | cn.EncoderDecoder,
    kind: str,
    replayed_ids: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To the last digit where nothing is fused; fused operators have laws of their own, in test_fused.py."""
    monkeypatch.setattr(fusion, "kernels", lambda: None)
    model = prepare_model(spec.build(seed=3), kind).eval()
    assert generated(model, Greedy(), NEW) == without_replay(model, Greedy(), NEW)
    assert replayed_ids


@pytest.mark.parametrize("left", [3, 200], ids=["short", "longer than the run"])
def test_a_window_is_replayed(left: int, replayed_ids: list[Tensor]) -> None:
    model = PLAIN.edit(cn.Attention, window=(left, 0)).build(seed=3)
    assert generated(model, Greedy(), NEW) == without_replay(model, Greedy(), NEW)
    assert replayed_ids


def test_a_hook_is_called_for_every_token(replayed_ids: list[Tensor]) -> None:
    model, calls = PLAIN.build(seed=3), []
    model.tower.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    generated(model, Greedy(), NEW)
    assert len(calls) == NEW and not replayed_ids


def test_a_global_hook_is_called_for_every_token(replayed_ids: list[Tensor]) -> None:
    model, calls = PLAIN.build(seed=3), []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: calls.append(1) if module is model.tower.norm or module is model.tower else None
    )
    try:
        generated(model, Greedy(), NEW)
    finally:
        handle.remove()
    assert len(calls) == NEW and not replayed_ids


@torch.inference_mode()
def test_rows_that_change_places_take_their_sources_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many rows as before, in the same tensors; but what they look back at is another one."""
    model, answers = zoo.pair().build(seed=3), []
    prompt = Prompt(torch.tensor([[3, 4, 5], [6, 7, 8]]), None, torch.tensor([[2], [2]]))
    monkeypatch.setattr(replayer, "MIN_STEPS", 0)
    for replay in (False, True):
        runner = DecoderRunner(model, prompt, 9, replay=replay)
        runner.prefill()
        for token in range(3, 7):
            runner.step(torch.tensor([[token], [token]]))
        runner.reorder(torch.tensor([1, 0]))
        answers.append([runner.step(torch.tensor([[token], [token]])) for token in range(4)])
    assert all(torch.equal(one, two) for one, two in zip(*answers, strict=True))


@pytest.mark.parametrize("window", [None, (3, 0), (200, 0)], ids=["no window", "short", "long"])
@pytest.mark.parametrize("name", ["plain", "rope", "alibi"])
def test_padded_batches_are_replayed(
    name: str, window: tuple[int, int] | None, replayed_ids: list[Tensor]
) -> None:
    spec = {
        "plain": PLAIN,
        "rope": PLAIN.edit(cn.Tower, positions=cn.Rope()),
        "alibi": PLAIN.edit(cn.Tower, positions=cn.Alibi()),
    }[name].edit(cn.Attention, window=window)
    model = spec.build(seed=3)
    prompt = torch.tensor([[3, 4, 5, 6, 9], [0, 6, 7, 2, 8], [0, 0, 0, 0, 7]])
    padded = Prompt(prompt, prompt > 0)
    answers = generate(model, padded, limit=NEW).finish()
    assert replayed_ids
    plain = generate(model, padded, limit=NEW, replay=False).finish()
    assert [[a.ids for a in row] for row in answers] == [[a.ids for a in row] for row in plain]
    assert [a.logprobs for row in answers for a in row] == [a.logprobs for row in plain for a in row]


def test_short_runs_are_not_replayed(replayed_ids: list[Tensor]) -> None:
    model = PLAIN.build(seed=3)
    generated(model, Greedy(), replayer.MIN_STEPS)
    assert not replayed_ids


def test_too_long_is_still_one_sentence() -> None:
    model = ch.build("gpt2", n_embd=16, n_head=2, n_layer=1, vocab_size=30, n_positions=20).model
    with pytest.raises(InputError, match="longer than the 20 learned positions"):
        generated(model, Greedy(), 30)


def test_nothing_of_a_run_is_kept(replayed_ids: list[Tensor]) -> None:
    model = PLAIN.build(seed=3)
    run = generate(model, Prompt(torch.tensor([[3, 4]])), limit=NEW)
    run.finish()
    # By type: asking a deprecated object of another library for its `__class__` warns.
    room = weakref.ref(next(x for x in gc.get_objects() if issubclass(type(x), Cache)))
    del run
    replayed_ids.clear()
    gc.collect()
    assert room() is None


# --- two recorded steps ---


def two(step: Callable[[Tensor, int], Tensor], *, more: int = 1) -> Callable[[Tensor, int], Tensor] | None:
    recorded = []
    for number in (5, 5 + more):
        recorded.append(RecordedStep(torch.tensor([[number]])))
        with recorded[-1] as now:
            now.output = step(now.ids, number)
    return compile_replay(*recorded)


def test_numbers_grow_and_shrink_and_checks_are_left_out() -> None:
    table, calls = torch.arange(40.0), []

    def step(ids: Tensor, n: int) -> Tensor:
        calls.append(n)
        assert not bool((ids + torch.tensor(float(n)).sqrt() < 0).any())  # nobody needs it
        x = table.narrow(0, n, 20 - n)[2:, None] + ids
        x[0] = 7.0
        low, high = x.aminmax()
        return x.mul_(2).sub(low).sum() + high

    replay = two(step)
    assert replay is not None
    for n in range(4):
        ids = torch.tensor([[3 * n]])
        assert torch.equal(replay(ids, n), step(ids, 6 + n))
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
def test_steps_that_differ_are_not_compiled(name: str) -> None:
    assert two(UNLIKE[name]) is None
