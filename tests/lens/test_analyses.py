"""Analyses against arithmetic, and against what nobody here wrote: scipy's flow, torch's clipping."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from speakers import TEXT, reader, translator, writer
from tolerance import assert_close
from torch.nn.utils import clip_grad_norm_
from zoo import EVERY, ids

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError
from clearhead.lens.ablate import ablate
from clearhead.lens.alignment import alignment
from clearhead.lens.answers import compare_answers
from clearhead.lens.gradients import Gradients, gradients
from clearhead.lens.heads import head_scores, induction, induction_test
from clearhead.lens.importance import head_importance
from clearhead.lens.rollout import flow, rollout
from clearhead.lens.statistics import statistics
from clearhead.lens.token_loss import token_losses
from clearhead.lens.trace import trace_ids
from clearhead.tasks.causal import CausalLM


def pattern(length: int, offset: int) -> torch.Tensor:
    """A head that always looks `offset` tokens back, or at the first."""
    weights = torch.zeros(length, length)
    for q in range(length):
        weights[q, max(q - offset, 0)] = 1
    return weights


class _Fixed:
    """As much of a trace as scores need."""

    def __init__(self, weights_LHQK: torch.Tensor, ids: list[int]) -> None:
        self.weights, self.tokens = weights_LHQK, [type("T", (), {"id": i}) for i in ids]

    def attention(self, kind: str, layer: int) -> torch.Tensor:
        return self.weights[layer]

    def layers(self, kind: str) -> int:
        return len(self.weights)

    def sides(self, kind: str) -> tuple[list, list]:
        return self.tokens, self.tokens

    def is_pooled(self, kind: str, layer: int) -> bool:
        return False


def test_scores_of_heads_whose_habits_are_known() -> None:
    n, said = 8, [1, 2, 3, 4, 1, 2, 3, 4]
    uniform = torch.full((n, n), 1 / n)
    heads = torch.stack([pattern(n, 0), pattern(n, 1), pattern(n, 99), pattern(n, 3), uniform])[None]
    scores = head_scores(_Fixed(heads, said))  # type: ignore[arg-type]
    assert scores.entropy[0].tolist() == pytest.approx([0, 0, 0, 0, 3])
    assert scores.itself[0, 0] == 1 and scores.previous[0, 1] == 1 and scores.first[0, 2] == 1
    assert scores.induction[0, 3] == 1  # four back, and one on: what followed the last time
    assert scores.distance[0].tolist() == pytest.approx([0, 7 / 8, 28 / 8, 18 / 8, 21 / 8])
    assert [scores.role(0, h) for h in range(5)] == ["itself", "previous", "sink", "induction", ""]
    assert math.isnan(float(induction(heads[0], list(range(n)))[0]))  # nothing comes twice


def test_the_induction_test_is_the_score_on_repeated_tokens() -> None:
    """On random tokens said twice, both measures look at the same places."""
    model = EVERY["decoder/Learned"].build()
    found = induction_test(model, vocab=31, length=10, seed=3)
    once = torch.randperm(31, generator=torch.Generator().manual_seed(3))[:10].tolist()
    trace = ch.build(EVERY["decoder/Learned"]).trace(once + once)
    for layer in range(2):
        weights = trace.attention("self", layer)
        rows = torch.arange(10, 19)
        assert_close(found[layer], weights[:, rows + 1, rows - 8].mean(-1))


@torch.no_grad()
def test_rollout_and_flow() -> None:
    key = torch.Generator().manual_seed(0)
    weights = torch.rand(3, 2, 5, 5, generator=key).softmax(-1)
    layers = [0.5 * w.mean(0) + 0.5 * torch.eye(5) for w in weights]
    assert_close(rollout(weights), layers[2] @ layers[1] @ layers[0])
    assert_close(rollout(weights).sum(-1), torch.ones(5))
    assert_close(flow(weights, 2), torch.tensor(_scipy_flow(layers, 2)).float(), 1e-5)
    assert bool((flow(weights, 2) >= rollout(weights)[2] - 1e-6).all())  # what passes at most
    with pytest.raises(InputError, match="no token 9"):
        flow(weights, 9)
    with pytest.raises(InputError, match="expected \\(layers, heads"):
        rollout(weights[0])


def _scipy_flow(layers: list[torch.Tensor], query: int) -> list[float]:
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_flow

    n, scale = 5, 10**8
    pipes = np.zeros((4 * n, 4 * n), dtype=np.int32)
    for i, layer in enumerate(layers):
        pipes[(i + 1) * n : (i + 2) * n, i * n : (i + 1) * n] = (layer * scale).round().numpy()
    return [maximum_flow(csr_matrix(pipes), 3 * n + query, k).flow_value / scale for k in range(n)]


@torch.no_grad()
def test_importance_is_the_move_of_the_answer_without_the_head(tmp_path: Path) -> None:
    for make, kind, side in ((writer, "self", ""), (translator, "cross", "cross."), (reader, "self", "")):
        bundle = make(tmp_path)
        trace = bundle.trace(TEXT)
        found = head_importance(trace, kind)
        assert found.shape == (trace.layers(kind), trace.heads(kind))
        model = ablate(bundle.model, [f"{side}head:1.2"])
        after = trace_ids(model, trace.input)
        p, q = trace.answer.double().log_softmax(-1), after.answer.double().log_softmax(-1)
        bits = float((p.exp() * (p - q)).sum(-1).mean()) / math.log(2)
        assert float(found[1, 2]) == pytest.approx(bits, rel=1e-3, abs=1e-6)
        assert compare_answers(trace, after).moved == pytest.approx(bits, rel=1e-3, abs=1e-6)


@torch.no_grad()
def test_an_alignment_names_rows_by_what_was_said(tmp_path: Path) -> None:
    trace = translator(tmp_path).trace(TEXT, "the dog")
    found = alignment(trace, layer=1, head=2)
    assert torch.equal(found.weights_QK, trace.attention("cross", 1, 2))
    assert [t.id for t in found.target[:-1]] == [t.id for t in trace.target_tokens[1:]]
    assert found.target[-1].id == int(trace.answer[-1].argmax())
    assert all(w == float(found.weights_QK[q].max()) for q, _, w in found.links)
    sharpest = head_scores(trace, "cross").entropy.mean(-1).argmin()
    assert alignment(trace).layer == int(sharpest)
    with pytest.raises(InputError, match="cross-attention"):
        alignment(writer(tmp_path).trace(TEXT))


def test_gradient_norms_add_up_to_what_clipping_uses() -> None:
    model = EVERY["decoder/Learned"].build()
    with pytest.raises(InputError, match="backward"):
        gradients(model)
    model(ids(2, 6)).square().mean().backward()
    found = gradients(model)
    clipped = float(clip_grad_norm_(model.parameters(), 1e-3))
    assert found.total == pytest.approx(clipped, rel=1e-6)
    assert math.hypot(*found.layers.values()) == pytest.approx(clipped, rel=1e-5)
    assert set(found.layers) == {
        "tower.embed",
        "tower.positions",
        "tower.blocks.0",
        "tower.blocks.1",
        "tower.norm",
    }
    marked = Gradients(1.0, {}, {"a": 1.0, "b": 1e-5, "c": 2.0, "d": 1e5, "e": 0.0})
    assert [marked.mark(name) for name in "abcde"] == ["", "vanishing", "", "exploding", "none"]


@torch.no_grad()
def test_statistics_are_those_of_the_activation(tmp_path: Path) -> None:
    trace = reader(tmp_path).trace(TEXT)
    rows = {row.address: row for row in statistics(trace, "*.ff.*")}
    x = trace.activation("tower.blocks.1.ff.hidden")
    row = rows["tower.blocks.1.ff.hidden"]
    assert (row.mean, row.std) == pytest.approx((float(x.mean()), float(x.std())))
    assert row.largest == float(x.abs().max()) and row.non_finite == 0 and row.shape == tuple(x.shape)


@torch.no_grad()
def test_the_x_ray_adds_up_to_the_loss() -> None:
    task = CausalLM({"train": [[5, 6, 7, 8, 9, 4], [3, 2, 6]]}, length=8, rows=2, pad=0)
    model = EVERY["decoder/Learned"].build()
    batch = task.batch(1, 0)
    rays = [
        token_losses(batch, lambda part: task.loss(model, part), None, row)
        for row in range(len(batch.ids_BT))
    ]
    total = sum(ray.loss for row in rays for ray in row if ray.loss is not None)
    assert total == pytest.approx(float(task.loss(model, batch)), rel=1e-5)
    for row, labels in zip(rays, batch.labels_BT.tolist(), strict=True):
        assert [None if ray.target is None else ray.target.id for ray in row] == [
            None if label == -100 else label for label in labels
        ]
    with pytest.raises(InputError, match="needs a batch with a label"):
        token_losses(3, lambda part: torch.zeros(()), None)


def test_labels_are_compared_by_name() -> None:
    bundle = ch.build(EVERY["head/Labels"])
    trace = bundle.trace(ids(1, 5))
    after = trace_ids(ablate(bundle.model, ["attn:0"]), trace.input)
    found = compare_answers(trace, after, {0: "good", 1: "bad", 2: "so-so"})
    assert {name for name, _ in found.before.best} == {"good", "bad", "so-so"} and found.moved > 0
    states = ch.build(EVERY["headless"])
    seen = states.trace(ids(1, 5))
    moved = compare_answers(seen, trace_ids(ablate(states.model, ["attn:0"]), seen.input))
    assert moved.before.best == [] and moved.moved > 0
    assert isinstance(states.spec, cn.SingleStack)
