"""Laws of the kernels: each against softmax under the same mask, against itself done another way, and against
packages that nobody here wrote."""

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch
from mixing import KERNELS, made, mix, noise, view
from tolerance import assert_close
from torch import Tensor
from zoo import SMALL, sample

from clearhead import nn as cn
from clearhead.errors import ClearheadError, InputError, SpecError, UnsupportedError
from clearhead.nn import kernels
from clearhead.nn.kernels.features import CHUNK
from clearhead.nn.kernels.performer import directions
from clearhead.nn.kernels.sequences import sequences
from clearhead.nn.kernels.softmax import attention_weights, window_blocks

LONG = 2 * CHUNK + 40  # three chunks, the last one not full
# Who meets whom in LSH attention depends on all tokens of a text; its own laws are in test_reformer.py.
KERNELS = {name: spec for name, spec in KERNELS.items() if not isinstance(spec, cn.LSH)}
every_kernel = pytest.mark.parametrize("spec", KERNELS.values(), ids=KERNELS)
STATEFUL = {n: s for n, s in KERNELS.items() if s.build(2, 4).cache_kind == "state"}
CAUSAL = {
    n: s for n, s in KERNELS.items() if "causal" in s.build(2, 4).supports and not s.build(2, 4).looks_ahead
}


def qkv(length: int = 11, batch: int = 2, heads: int = 2, width: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (noise(batch, heads, length, width, seed=s) for s in range(3))
    return q, k, v


def masks(length: int) -> dict[str, cn.Mask]:
    """The masks of texts, by what they need: nothing, the triangle, padding on either side, packing."""
    real = torch.ones(2, length, dtype=torch.bool)
    real[0, : length // 3], real[1, -2:] = False, False
    document = torch.zeros(2, length, dtype=torch.long)
    document[0, length // 2 :], document[1, :2], document[1, -1:] = 1, 5, -1
    rules = {"open": cn.Everyone(), "padded": cn.Padding(real), "packed": cn.Documents(document)}
    return rules | {f"causal {name}": cn.Causal() & rule for name, rule in rules.items()}


def seen(
    kernel: cn.Kernel, q: Tensor, k: Tensor, v: Tensor, over: cn.View, scale: float
) -> tuple[Tensor, Tensor]:
    record = cn.Recorder()
    out = kernel(cn.AttentionCall(q, k, v, over, scale=scale), record.tap("pattern"))
    return out, record["pattern"]


def large(spec: kernels.AttentionKernel, length: int) -> kernels.AttentionKernel:
    """A long text in tiles of four takes minutes, and shows nothing that larger ones do not."""
    return replace(spec, tile=96) if isinstance(spec, kernels.Tiled) and length > 50 else spec


def asking(rule: cn.Mask, length: int) -> Tensor:
    """(B, Q): the queries that are of some text; what a padded one is told does not matter."""
    numbers = rule.segments()
    return torch.ones(2, length, dtype=torch.bool) if numbers is None else numbers >= 0


@every_kernel
@pytest.mark.parametrize("length", [11, LONG])
def test_the_weights_shown_are_those_that_made_the_answer(spec: kernels.AttentionKernel, length: int) -> None:
    kernel, (q, k, v) = made(large(spec, length), 2, 6).double(), qkv(length)
    for name, rule in masks(length).items():
        if name.startswith("causal") and "causal" not in kernel.supports:
            continue
        over = view(rule, 2, length, length)
        out, weights = seen(kernel, q, k, v, over, 0.4)
        assert weights.shape == (2, 2, length, length)
        assert_close(weights @ v, out, tolerance=1e-9)
        real = asking(rule, length)[:, None, :, None].expand(2, 2, length, length)
        if kernel.is_normalised:
            assert_close(
                weights.sum(-1)[real[..., 0]], torch.ones(int(real[..., 0].sum())).double(), tolerance=1e-9
            )
            assert bool((weights >= 0).all())
        allowed = over.dense
        if allowed is not None:
            assert (
                float(weights.masked_fill(allowed | ~real, 0.0).abs().max()) == 0
            )  # nothing where no one may look


@every_kernel
def test_gradients_match_finite_differences(spec: kernels.AttentionKernel) -> None:
    kernel = made(spec, 2, 4).double()
    q, k, v = (x.requires_grad_() for x in qkv(7, width=4))
    for name, rule in masks(7).items():
        if name.startswith("causal") and "causal" not in kernel.supports:
            continue
        call = partial(cn.AttentionCall, view=view(rule, 2, 7, 7), scale=0.5)
        attend = lambda q, k, v, call=call: kernel(call(q, k, v))  # noqa: E731
        assert torch.autograd.gradcheck(attend, (q, k, v), fast_mode=True), name


@pytest.mark.parametrize("spec", CAUSAL.values(), ids=CAUSAL)
def test_the_future_is_not_seen_across_chunks(spec: kernels.AttentionKernel) -> None:
    """Not even in the last digit, and however large what is to come."""
    kernel, (q, k, v) = made(large(spec, LONG), 2, 6).double(), qkv(LONG)
    over = view(cn.Causal(), 2, LONG, LONG)
    before = kernel(cn.AttentionCall(q, k, v, over, scale=0.4))
    for cut in (1, 5, CHUNK - 1, CHUNK, CHUNK + 1, LONG - 1):
        later = [
            torch.cat([x[:, :, :cut], 30 * noise(2, 2, LONG - cut, 6, seed=9)], dim=2) for x in (q, k, v)
        ]
        after = kernel(cn.AttentionCall(*later, over, scale=0.4))
        assert torch.equal(before[:, :, :cut], after[:, :, :cut]), cut


@pytest.mark.parametrize("spec", STATEFUL.values(), ids=STATEFUL)
def test_step_by_step_equals_all_at_once(spec: kernels.AttentionKernel) -> None:
    """A state of constant size is all that is kept, through chunks of any size."""
    kernel, (q, k, v) = made(spec, 2, 6).double(), qkv(LONG)
    want = kernel(cn.AttentionCall(q, k, v, view(cn.Causal(), 2, LONG, LONG), scale=0.4))
    for sizes in ([1] * LONG, [CHUNK + 3, 1, LONG - CHUNK - 4]):
        state, at, parts, held = None, 0, [], set()
        for size in sizes:
            over = view(cn.Causal(), 2, size, at + size, start=at)
            new = (x[:, :, at : at + size] for x in (q, k, v))
            out, state = kernel.step(cn.AttentionCall(*new, over, scale=0.4), state)
            parts.append(out)
            held.add(sum(x.numel() for x in state))
            at += size
        assert_close(torch.cat(parts, dim=2), want, tolerance=1e-10)
        assert len(held) == 1


@pytest.mark.parametrize("rule", masks(11).values(), ids=masks(11))
def test_exact_kernels_equal_softmax_under_the_same_mask(rule: cn.Mask) -> None:
    q, k, v = qkv()
    over, real = view(rule, 2, 11, 11), asking(rule, 11)
    want = mix(cn.Softmax(), q, k, v, over)
    exact = {"Tiled": kernels.Tiled(tile=4), "Summary of one": kernels.Summary(block=1),
             "Summary of all": kernels.Summary(block=11)}  # fmt: skip
    if not over.outline.causal:
        exact["Nystrom of all"] = kernels.Nystrom(landmarks=11, iterations=40)
    for name, spec in exact.items():
        got = mix(spec, q, k, v, over)
        limit = 1e-6 if name == "Nystrom of all" else 1e-10  # the inverse of a matrix that is nearly singular
        assert_close(got.transpose(1, 2)[real], want.transpose(1, 2)[real], tolerance=limit)


@pytest.mark.parametrize("rule", masks(LONG).values(), ids=masks(LONG))
def test_a_window_by_blocks_equals_the_mask_of_that_name(rule: cn.Mask) -> None:
    """All at once, for the newest tokens alone, with a bias, with grouped heads; forwards and backwards."""
    q, bias = noise(2, 4, LONG, 6), noise(1, 4, LONG, LONG, seed=3)
    k, v = noise(2, 2, LONG, 6, seed=1), noise(2, 2, LONG, 5, seed=2)
    for left, right, newest in ((5, 5, LONG), (70, 3, LONG), (5, 5, 1), (9, 0, 50), (2 * LONG, LONG, LONG)):
        start = LONG - newest
        over = view(rule, 2, newest, LONG, start)
        given = [x.requires_grad_() for x in (q[:, :, start:].clone(), k.clone(), v.clone())]
        banded = over.restrict(cn.SlidingWindow(left, right))
        assert (window_blocks(banded) is None) == (left > LONG)  # the blocks are really used
        for b in (None, bias[:, :, start:]):
            got = mix(kernels.Window(left=left, right=right), *given, over, bias=b)
            by_rule = mix(cn.Softmax(), *given, banded, bias=b)
            weights = attention_weights(cn.AttentionCall(*given, banded, bias=b, scale=6**-0.5))
            plain = weights @ given[2].repeat_interleave(2, 1)
            real = asking(rule, LONG)[:, start:]
            assert_close(got.transpose(1, 2)[real], plain.transpose(1, 2)[real])
            assert torch.equal(got, by_rule)
            grads = [
                torch.autograd.grad(out.transpose(1, 2)[real].square().sum(), given) for out in (got, plain)
            ]
            for one, two in zip(*grads, strict=True):
                assert_close(one, two, tolerance=1e-10)


def test_a_summary_of_equal_keys_loses_nothing() -> None:
    """Where all keys of a block are alike, the block as a whole weighs what its tokens weigh."""
    q, k, v = qkv(12)
    k = k[:, :, ::4].repeat_interleave(4, dim=2)
    for rule in (cn.Everyone(), cn.Causal()):
        over = view(rule, 2, 12, 12)
        assert_close(mix(kernels.Summary(block=4), q, k, v, over), mix(cn.Softmax(), q, k, v, over))


def test_linformer_with_the_identity_for_a_projection_is_softmax() -> None:
    q, k, v = qkv()
    kernel = kernels.Linformer(rank=11, length=11).build(2, 6).double()
    with torch.no_grad():
        kernel.k.copy_(torch.eye(11)), kernel.v.copy_(torch.eye(11))
    over = view(cn.Everyone(), 2, 11, 11)
    got = kernel(cn.AttentionCall(q, k, v, over, scale=0.4))
    assert_close(got, mix(cn.Softmax(), q, k, v, over, scale=0.4))


@torch.no_grad()
def test_approximations_come_nearer_as_they_grow() -> None:
    """Mean error over several draws, each step at least a little smaller than the one before."""
    # Neighbours are alike, as in real streams: of independent noise no landmark can stand for another token.
    q, k, v = (0.2 * x.cumsum(2) for x in qkv(64, width=16))
    over = view(cn.Everyone(), 2, 64, 64)
    want = mix(cn.Softmax(), q, k, v, over)

    def error(specs: list[kernels.AttentionKernel]) -> float:
        return sum(float((mix(spec, q, k, v, over) - want).abs().mean()) for spec in specs) / len(specs)

    ladders = {
        "Performer": [
            [kernels.Performer(features=n, seed=s) for s in range(6)] for n in (16, 128, 1024, 8192)
        ],
        "Nystrom": [[kernels.Nystrom(landmarks=n, iterations=20)] for n in (2, 16, 48, 64)],
        "Summary": [[kernels.Summary(block=n)] for n in (16, 8, 2, 1)],
    }
    for name, ladder in ladders.items():
        errors = [error(specs) for specs in ladder]
        assert all(b < 0.9 * a for a, b in pairwise(errors)), (name, errors)


@torch.no_grad()
def test_random_features_have_no_bias() -> None:
    """The mean of many estimates of exp(q.k) is exp(q.k): no small number is added to any of them."""
    q, k = 0.5 * noise(6), 0.5 * noise(6, seed=1)
    draws = []
    for seed in range(200):
        w = directions(12, 6, torch.Generator().manual_seed(seed))
        draws.append(((w @ q - q @ q / 2).exp() * (w @ k - k @ k / 2).exp()).mean())
    draws = torch.stack(draws)
    assert abs(draws.mean() - (q @ k).exp()) < 3 * draws.std() / 200**0.5
    gram = directions(6, 6, torch.Generator().manual_seed(0))
    assert_close(gram @ gram.mT, torch.diag((gram @ gram.mT).diagonal()))  # orthogonal


def test_redrawn_features_change_in_training_only_and_repeat_with_the_generator() -> None:
    kernel = kernels.Performer(features=8, redraw=True).build(2, 6).double()
    q, k, v = qkv()
    call = partial(kernel, cn.AttentionCall(q, k, v, view(cn.Causal(), 2, 11, 11), scale=0.4))
    kernel.eval()
    assert torch.equal(call(), call())
    kernel.train()

    def trained(seed: int) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return call()

    assert torch.equal(trained(1), trained(1)) and not torch.equal(trained(1), trained(2))


def test_what_is_kept_for_the_way_back_grows_with_the_length_alone() -> None:
    """Twice the text, at most 2.3 times the memory; softmax written out has four times."""

    def kept(call: object, length: int) -> int:
        sizes: dict[int, int] = {}
        note = lambda x: (sizes.update({x.data_ptr(): x.numel()}), x)[1]  # noqa: E731
        q, k, v = (noise(1, 1, length, 8, seed=s).requires_grad_() for s in range(3))
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            call(cn.AttentionCall(q, k, v, view(cn.Causal(), 1, length, length), scale=0.3))
        return sum(sizes.values())

    for spec in (kernels.Linear(), kernels.Performer(), kernels.Tiled(), kernels.Window(left=64)):
        kernel = spec.build(1, 8).double()
        assert kept(kernel, 1024) / kept(kernel, 512) < 2.3, spec
    plain = lambda call: attention_weights(call) @ call.v_BHKE  # noqa: E731
    assert kept(plain, 1024) / kept(plain, 512) > 3.5


REFUSED = {
    "causal Linformer": (kernels.Linformer(), {"causal": True}, "early words would see late ones"),
    "causal Nystrom": (kernels.Nystrom(), {"causal": True}, "early words would see late ones"),
    "windowed Linear": (
        kernels.Linear(),
        {"window": (2, 0)},
        "Linear attention cannot take a mask with a window",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_when_the_model_is_built(case: str) -> None:
    from zoo import attention, block, single

    kernel, changes, words = REFUSED[case]
    window = {"window": changes.pop("window")} if "window" in changes else {}
    spec = single(**changes, block=block(attention=attention(kernel=kernel, **window)))
    with pytest.raises(UnsupportedError, match=words) as caught:
        spec.build()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernels.Performer(features=0), "Performer.features is 0, expected a whole number from 1"),
        (lambda: kernels.Linformer(rank=0), "Linformer.rank is 0, expected a whole number from 1"),
        (lambda: kernels.Nystrom(landmarks=0), "Nystrom.landmarks is 0, expected a whole number from 1"),
        (lambda: kernels.Summary(block=0), "Summary.block is 0"),
        (lambda: kernels.Tiled(tile=0), "Tiled.tile is 0"),
        (lambda: kernels.Window(left=-1), "0 or more tokens to each side"),
    ],
)
def test_sizes_that_mean_nothing_are_refused(make, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        make()


def test_a_text_longer_than_linformer_knows_is_refused() -> None:
    q, k, v = qkv(9)
    with pytest.raises(InputError, match="projections for 8 positions, this text has 9 tokens"):
        mix(kernels.Linformer(rank=2, length=8), q, k, v, view(cn.Everyone(), 2, 9, 9))


def test_cross_attention_refuses_kernels_of_one_text() -> None:
    for kernel in (kernels.Nystrom(), kernels.Summary(), kernels.Window(left=2)):
        with pytest.raises(ClearheadError, match="is for tokens of one text"):
            cn.Attention(heads=2, kernel=kernel).build_cross(8, 8)


def test_a_running_state_shows_no_pattern_and_says_so() -> None:
    kernel, (q, k, v) = kernels.Linear().build(2, 6), qkv(3)
    over = view(cn.Causal(), 2, 3, 3)
    with pytest.raises(UnsupportedError, match="without a cache"):
        kernel.step(cn.AttentionCall(q, k, v, over), None, cn.Recorder().tap())


def test_sequences_are_taken_out_and_put_back() -> None:
    rule = cn.Documents(torch.tensor([[-1, 4, 4, 2, 4], [0, 0, -1, 0, 7]]))
    over = view(rule, 2, 5, 5)
    found = sequences(over)
    x = torch.arange(10).reshape(2, 5) + 1
    assert found.keys.take(x).tolist() == [[4, 0, 0], [2, 3, 5], [6, 7, 9], [10, 0, 0]]
    assert found.row_S.tolist() == [0, 0, 1, 1]
    assert found.keys.put(found.keys.take(x)).tolist() == [[0, 2, 3, 4, 5], [6, 7, 0, 9, 10]]
    assert sequences(view(cn.Causal(), 2, 5, 5)) is None


def test_the_zoo_cuts_texts_into_several_parts() -> None:
    """The laws over all models would see one block only if the samples were as large as the defaults."""
    assert sample(kernels.Summary).block == SMALL["block"] < 5
    assert replace(kernels.Summary(), block=4) == sample(kernels.Summary)
