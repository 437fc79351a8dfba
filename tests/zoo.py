"""One tiny model for every choice the core offers, made from the registries.

A new norm, position scheme, kernel or head appears here by itself: `sample` fills its required fields by
their types. Only sizes that must fit the tiny models are given by name.
"""

from dataclasses import MISSING, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from tolerance import assert_close

from clearhead import nn as cn
from clearhead.nn.attention import TokenMixer
from clearhead.nn.block import BlockOrder
from clearhead.nn.feedforward import ACTIVATIONS, FeedForward
from clearhead.nn.heads import Head
from clearhead.nn.init import Init
from clearhead.nn.kernels import AttentionKernel
from clearhead.nn.kernels.features import FeatureKernel
from clearhead.nn.kernels.kernel import Need
from clearhead.nn.kernels.linformer import _Linformer
from clearhead.nn.model import Model
from clearhead.nn.norm import Norm
from clearhead.nn.positions import Positions
from clearhead.nn.rope import Stretch
from clearhead.spec import Spec

VOCAB, WIDTH, HEADS, DEPTH = 31, 24, 4, 2
# Sizes of kernels: small enough that a text of a few tokens is cut into several parts.
SMALL = {"features": 16, "rank": 5, "landmarks": 3, "block": 4, "chunk": 4, "tile": 4, "left": 2}
# Sizes that must fit the tower: its vocabulary, its width (14 + 10), texts of at most 48 = 8 * 6 tokens.
FITTING = {"vocab": VOCAB, "heads": HEADS, "length": 16, "shape": (8, 6), "widths": (14, 10), "hidden": 40,
           "short": (1.0, 1.5, 2.0), "long": (2.0, 3.0, 5.0),
           "schemes": (cn.Learned(length=48), cn.RelativeBuckets(buckets=8, max_distance=12))}  # fmt: skip


def sample(kind: type[Spec]) -> Spec:
    """A value of a kind: required fields by their types, sizes of kernels small."""
    hints = get_type_hints(kind)
    chosen = FITTING | (SMALL if issubclass(kind, AttentionKernel) else {})
    return kind(
        **{
            f.name: chosen[f.name] if f.name in chosen else of_type(hints[f.name])
            for f in fields(kind)
            if (f.default is MISSING and f.default_factory is MISSING)
            or (issubclass(kind, AttentionKernel) and f.name in SMALL)
        }
    )


def of_type(hint: Any) -> Any:
    """A value of this type that nearly every field can have."""
    inside = get_args(hint)
    if get_origin(hint) is Literal:
        return inside[0]
    if get_origin(hint) is tuple:
        return tuple(of_type(each) for each in inside if each is not ...)
    if inside:  # a union
        return of_type(inside[0])
    if issubclass(hint, Spec):
        return sample(hint)
    return {bool: True, int: 3, float: 2.0, str: "x"}[hint]


def can(attention: TokenMixer, need: Need) -> bool:
    """Whether an attention, by its kernel, or another mixer can honour a need."""
    if not isinstance(attention, cn.Attention):
        return need in attention.build(WIDTH).supports
    supports = attention.kernel.build(HEADS, WIDTH // HEADS).supports
    return need in supports


def fitting(mixer: TokenMixer, need: Need) -> TokenMixer:
    """The same mixer; softmax attention where it could not stand at that place."""
    out_of_place = need == "uneven" and isinstance(mixer, cn.Attention) and mixer.kernel.one_text
    if isinstance(mixer, cn.Attention) and need == "uneven" and mixer.project != "each":
        return attention()
    if can(mixer, need) and not out_of_place:
        return mixer
    return replace(mixer, kernel=cn.Softmax()) if isinstance(mixer, cn.Attention) else attention()


def decodes(mixer: TokenMixer) -> bool:
    """Whether it can go on where it stopped, as a decoder must."""
    if not isinstance(mixer, cn.Attention):
        return can(mixer, "causal")
    kernel = mixer.kernel.build(HEADS, WIDTH // HEADS)
    return "causal" in kernel.supports and ("uneven" in kernel.supports or kernel.cache_kind == "state")


def attention(**changes: object) -> cn.Attention:
    return cn.Attention(**{"heads": HEADS, "bias": "qkvo"} | changes)


def block(**changes: object) -> cn.Block:
    # Dropout everywhere: laws run in eval mode, where it must be silent.
    standard = {"attention": attention(), "feedforward": cn.MLP(hidden=40, dropout=0.1), "dropout": 0.1}
    return cn.Block(**standard | changes)


def tower(**changes: object) -> cn.Tower:
    standard = {
        "width": WIDTH,
        "depth": DEPTH,
        "embed": cn.Tokens(vocab=VOCAB, dropout=0.1),
        "block": block(),
        "positions": cn.Learned(length=48),
        "last_norm": cn.norm.Layer(),
    }
    return cn.Tower(**standard | changes)


def single(head: Head | None = None, **changes: object) -> cn.SingleStack:
    return cn.SingleStack(tower=tower(**changes), head=head or cn.TokenHead(vocab=VOCAB), init=START)


def pair(**changes: object) -> cn.EncoderDecoder:
    encoder = tower(**changes)
    crossed = tuple(
        replace(
            b,
            attention=b.attention if decodes(b.attention) else attention(),
            cross=fitting(b.attention, "uneven"),
        )
        for b in encoder.pattern
    )
    crossed = tuple(b.edit(cn.Attention, window=None) if b.cross.window else b for b in crossed)
    decoder = replace(encoder, causal=True, block=crossed)
    return cn.EncoderDecoder(encoder=encoder, decoder=decoder, head=cn.TokenHead(vocab=VOCAB), init=START)


START = cn.Normal(std=0.3)  # large enough that every part matters to the answer


def _mixtures() -> dict[str, cn.Experts]:
    """Mixtures of experts, one for each choice of a router."""
    experts = {
        "shared": {"shared": cn.Gated(hidden=12), "router": cn.Router(normalised=False)},
        "gated": {"shared": cn.Gated(hidden=12), "shared_gate": True, "router": cn.Router(bias=True)},
        "grouped": {"router": cn.Router(scores="sigmoid", scale=2.5, balanced=True,
                                        groups=cn.ExpertGroups(count=3, chosen=2, best=2))},
        # So small that several tokens of every text are left out; noise is for training, and silent here.
        "full": {"router": cn.Router(chosen=2, capacity=2, jitter=0.1, wide=True)},
        "switch": {"count": 2, "router": cn.Router(chosen=1, normalised=False, capacity=1, bias=True)},
    }  # fmt: skip
    return {n: cn.Experts(**{"count": 6, "expert": cn.Gated(hidden=20)} | c) for n, c in experts.items()}


def _choices() -> dict[str, dict[str, object]]:
    """Changes to the standard tower: each makes one member."""
    turns = {f"rope-{n}": cn.Rope(stretch=sample(k)) for n, k in Stretch.kinds().items()}
    schemes = {n: sample(k) for n, k in Positions.kinds().items()} | turns
    schemes["rope-partial-neighbours"] = cn.Rope(fraction=0.34, pairing="neighbours")
    schemes["waves-in-halves"] = cn.Sinusoidal(layout="halves")
    schemes["waves-to-the-end"] = cn.Sinusoidal(layout="halves", offset=2, endpoint=True)
    schemes["alibi-rounded"] = cn.Alibi(scale=0.5, number="bfloat16")
    schemes["learned-offset"] = cn.Learned(length=48, offset=2)
    for name, scheme in schemes.items():
        if isinstance(scheme, cn.Learned) and scheme.length < 48:
            schemes[name] = replace(scheme, length=48)
    made: dict[str, dict[str, object]] = {n: {"positions": s} for n, s in schemes.items()}
    made |= {f"order-{o}": {"block": block(order=o)} for o in get_args(BlockOrder)}
    made |= {f"norm-{n}": {"block": block(norm=sample(k))} for n, k in Norm.kinds().items()}
    made |= {f"kernel-{n}": {"block": block(attention=attention(kernel=sample(k)))}
             for n, k in AttentionKernel.kinds().items()}  # fmt: skip
    for kind in (cn.MLP, cn.Gated):
        for act in ACTIVATIONS:
            made[f"{kind.__name__}-{act}"] = {"block": block(feedforward=kind(hidden=40, act=act))}
    made |= {f"feedforward-{n}": {"block": block(feedforward=sample(k))}
             for n, k in FeedForward.kinds().items()}  # fmt: skip
    made["gated-limited"] = {"block": block(feedforward=cn.Gated(hidden=40, act="quick_gelu", limit=0.5))}
    made |= {f"experts-{n}": {"block": block(feedforward=mixture)} for n, mixture in _mixtures().items()}
    made |= {f"mixer-{n}": {"block": block(attention=sample(k))} for n, k in TokenMixer.kinds().items()}
    made["mixer-gru"] = {"block": block(attention=cn.Recurrent(cell="gru", hidden=10))}
    made["mixer-even"] = {"block": block(attention=cn.Convolution(size=4))}
    made["mixed-mixers"] = {"block": (block(attention=cn.Recurrent()), block())}
    heads = {
        "no-bias": {"bias": ""},
        "grouped": {"kv_heads": 2},
        "one-key": {"kv_heads": 1},
        "odd-sizes": {"heads": 3, "head_dim": 10, "value_dim": 7, "bias": "qvo"},
        "qk-norm": {"qk_norm": cn.norm.RMS(), "scale": 0.3},
        "qk-norm-each": {"kv_heads": 2, "qk_norm": cn.norm.Layer(bias=False), "qk_norm_heads": "each"},
        "qk-norm-joint": {"kv_heads": 2, "qk_norm": cn.norm.RMS(), "qk_norm_heads": "joint"},
        "clipped": {"clip": 0.5, "bias": ""},
        "capped": {"kernel": cn.Softmax(cap=5.0)},
        "dropped": {"kernel": cn.Softmax(dropout=0.1)},
        "window": {"window": (2, 1)},
        "sink": {"kernel": cn.Softmax(sink=True)},
        "longformer-dilated": {"kernel": cn.Longformer(window=2, dilation=2, always=(1,), dropout=0.1)},
    }
    made |= {name: {"block": block(attention=attention(**changes))} for name, changes in heads.items()}
    latent = {"head_dim": 10, "value_dim": 7, "bias": "o"}
    made["latent"] = {
        "block": block(attention=attention(project=cn.Latent(rank=9, rotated=4), **latent)),
        "positions": cn.Rope(pairing="neighbours"),
    }
    short = cn.Latent(rank=9, rotated=4, query_rank=12, bias=True)
    made["latent-queries"] = {
        "block": block(attention=attention(project=short, **latent)),
        "positions": cn.Rope(),
    }
    near = block(attention=attention(window=(2, 0)))
    made["pattern"] = {"block": (near, block())}
    made["positions-by-layer"] = {
        "positions": cn.Rope(),
        "block": (block(positions=cn.Rope(theta=100.0)), block(), block(positions=cn.NoPositions())),
        "depth": 4,
    }
    made["learned-positions-by-layer"] = {
        "positions": cn.NoPositions(),
        "block": block(positions=cn.RelativeBuckets(buckets=8, max_distance=20)),
    }
    made["shared-layers"] = {"depth": 4, "distinct": 2}
    made["typed-scaled-normed"] = {
        "embed": cn.Tokens(vocab=VOCAB, types=2, norm=cn.norm.Layer(), scale=WIDTH**0.5),
        # As models without a last norm are: with pre-norm blocks, states and logits grew to 74, where the
        # rounding of float32 alone (8e-5 from float64) is beyond the tolerance that unit-size answers have.
        "block": block(order="post"),
        "last_norm": None,
    }
    made["no-first-norm"] = {"block": (block(attention_norm=cn.norm.NoNorm()), block())}
    made["tasks"] = {"embed": cn.Tokens(vocab=VOCAB, types=2, tasks=3, norm=cn.norm.Layer())}
    made["centred"] = {"block": block(norm=cn.norm.RMS(centred=True), order="sandwich")}
    made["no-norm-bias"] = {"block": block(norm=cn.norm.Layer(bias=False))}
    made["scaled-residuals"] = {"block": block(scale=0.4)}
    made["recompute"] = {"recompute": True}
    narrow = cn.Tokens(vocab=VOCAB, factor=10, norm=cn.norm.Layer(), dropout=0.1)
    made["narrow-table"] = {
        "embed": replace(narrow, order="project-positions-norm-dropout"),
        "last_width": 10,
    }
    layered = cn.Disentangled(farthest=9, buckets=4, project="layer", norm=cn.norm.Layer(), dropout=0.1)
    made["distances-of-the-layer"] = {"positions": layered}
    made["distances-one-way"] = {
        "positions": cn.Disentangled(terms=("p2c",), bias="", farthest=4, absolute=cn.Learned(length=48))
    }
    narrow = cn.Tokens(vocab=VOCAB, factor=WIDTH, norm=cn.norm.Layer(), dropout=0.1)
    made["projected-before-the-norm"] = {"embed": replace(narrow, order="project-norm-dropout")}
    made["projected-before-dropout"] = {"embed": replace(narrow, order="norm-project-dropout")}
    return made | _virtual_tokens(narrow, made["latent"])


def _virtual_tokens(narrow: cn.Tokens, latent: dict[str, object]) -> dict[str, dict[str, object]]:
    """Towers with prompts and prefixes, one of them over a narrow table, one with latent attention."""
    made: dict[str, dict[str, object]] = {}
    prompt, prefix = cn.PromptTokens(length=3), cn.PrefixTokens(length=3)
    made["prompt"] = {"virtual": prompt}
    made["prompt-window"] = {"virtual": prompt, "block": block(attention=attention(window=(2, 1)))}
    made["prompt-narrow-table"] = {"virtual": prompt, "embed": replace(narrow, types=2)}
    first = replace(narrow, order="project-positions-norm-dropout")
    made["prompt-projected-first"] = {"virtual": prompt, "embed": first}
    made["prompt-relative"] = {"virtual": prompt, "positions": sample(cn.RelativeBuckets)}
    made["prefix"] = {"virtual": prefix}
    made["prefix-rope-window"] = {"virtual": prefix, "positions": cn.Rope(),
                                  "block": (block(attention=attention(window=(2, 1))), block())}  # fmt: skip
    made["prefix-relative"] = {"virtual": prefix, "positions": cn.RelativeBuckets(buckets=8, max_distance=12)}
    made["prefix-alibi-grouped"] = {
        "virtual": prefix,
        "positions": cn.Alibi(),
        "block": block(attention=attention(kv_heads=2)),
    }
    capped = attention(value_dim=7, kernel=cn.Softmax(cap=5.0, sink=True))
    made["prefix-capped-sink"] = {"virtual": prefix, "block": block(attention=capped)}
    made["prefix-waves"] = {"virtual": prefix, "positions": cn.RelativeWaves()}
    made["prefix-shared-layers"] = {"virtual": prefix, "depth": 4, "distinct": 2}
    made["prefix-latent"] = latent | {"virtual": prefix}
    return made


CHOICES = _choices() | {
    "repeated-layers": {"depth": 4, "distinct": (1, 3), "positions": cn.RelativeWaves()},
    "first-apart": {"positions": cn.RelativeWaves(first="apart")},
}
FUNNEL = {"depth": 4, "block": block(order="post"), "positions": cn.Combined(
    schemes=(cn.RelativeWaves(first="apart"), cn.RelativeTypes()))}  # fmt: skip
# What only an encoder can have: no cache keeps the second set.
OPEN = {
    "pooled": FUNNEL | {"pooling": cn.Pooling(before=(1, 2), restore=3)},
    "pooled-max": FUNNEL | {"pooling": cn.Pooling(before=(1,), restore=3, reduce="max", pooled="all")},
    "pooled-pairs": FUNNEL | {"pooling": cn.Pooling(before=(1, 2), restore=3, groups="pairs"),
                              "positions": cn.RelativeWaves()},
    "pooled-first-alone": FUNNEL | {"pooling": cn.Pooling(before=(1,), restore=2, groups="first-alone"),
                                    "distinct": (1, 2, 1), "positions": cn.RelativeWaves()},
    "pooled-otherwise": {"depth": 3, "positions": cn.NoPositions(),
                         "block": (block(positions=cn.RelativeBuckets(buckets=8, max_distance=20)),
                                   block(attention=cn.Fourier())),
                         "pooling": cn.Pooling(before=(1,), restore=2, pooled="all")},
    "masked-zero": {"embed": cn.Tokens(vocab=VOCAB, masked=cn.MaskedZero(id=3))},
    "aside": {"block": (block(aside=cn.Convolution(act="tanh", groups=4), order="post"), block())},
    "aside-pre": {"block": block(aside=cn.Convolution(act="gelu", size=4))},
    "aside-sandwich": {"block": block(aside=cn.Fourier(), order="sandwich")},
    "mixer-both-ways": {"block": block(attention=cn.Recurrent(both_ways=True))},
    "own-globals": {"block": block(attention=attention(
        kernel=cn.Longformer(window=2, always=(0, 2)), project="twice", bias="qvo"))},
    "block-summaries": {"block": block(attention=attention(
        project=cn.BlockSummaries(block=2), kernel=cn.Softmax(dropout=0.1), kv_heads=2))},
    "block-summaries-window": {
        "block": block(attention=attention(project=cn.BlockSummaries(block=2), window=(2, 1))),
        "positions": cn.RelativeBuckets(buckets=8, max_distance=12)},
    "block-summaries-by-layer": {
        "block": (block(attention=attention(project=cn.BlockSummaries(block=3), window=(1, 1))), block()),
        "positions": cn.RelativeBuckets(buckets=8, max_distance=12)},
}  # fmt: skip
ENCODERS: dict[str, Model] = {n: single(**c) for n, c in (CHOICES | OPEN).items()}
DECODERS: dict[str, Model] = {
    n: single(causal=True, **c)
    for n, c in CHOICES.items()
    if all(decodes(b.attention) for b in tower(**c).pattern)
}
DECODERS["reversible"] = single(
    cn.TokenHead(vocab=VOCAB, tied=False), causal=True, residual="reversible", positions=cn.Rope()
)
PAIRS: dict[str, Model] = {n: pair(**c) for n, c in CHOICES.items()}
HEADED: dict[str, Model] = {n: single(sample(k)) for n, k in Head.kinds().items()} | {
    "untied": single(cn.TokenHead(vocab=VOCAB, tied=False, bias=True, scale=0.5, cap=4.0)),
    "bert": single(cn.TokenHead(vocab=VOCAB, bias=True, transform=cn.Transform(norm=cn.norm.Layer()))),
    "wide-transform": single(
        cn.TokenHead(
            vocab=VOCAB, tied=False, transform=cn.Transform(norm=cn.norm.Layer(), width=37, bias=False)
        ),
        embed=cn.Tokens(vocab=VOCAB, factor=10),
    ),
    "pooler": single(cn.Labels(count=3, transform=cn.Transform(act="tanh"), dropout=0.1)),
    "late-mean": single(cn.Labels(count=3, pool="mean", pool_at="transformed", transform=cn.Transform())),
    "late-max": single(
        cn.Labels(count=3, pool="max", pool_at="transformed", transform=cn.Transform(width=7))
    ),
    "tags-transform": single(
        cn.Tags(count=3, transform=cn.Transform(norm=cn.norm.Layer(bias=False), bias=False), dropout=0.1)
    ),
    "span-transform": single(cn.Span(transform=cn.Transform())),
    "mean-labels": single(cn.Labels(count=3, pool="mean")),
    "last-labels": single(cn.Labels(count=3, pool="last", bias=False)),
    "max-unit": single(cn.Pooled(pool="max", unit=True, count=5)),
    "adaptive": single(
        cn.AdaptiveHead(vocab=VOCAB, cutoffs=(9, 20), inner_width=20),
        embed=cn.Adaptive(vocab=VOCAB, cutoffs=(9, 20), inner_width=20, shrink=2, dropout=0.1),
    ),
    "reversible": single(cn.TokenHead(vocab=VOCAB, tied=False), residual="reversible", depth=3),
    "reversible-shared": single(cn.Labels(count=3), residual="reversible", depth=4, distinct=2),
    "factored": single(
        cn.TokenHead(vocab=VOCAB, bias=True, transform=cn.Transform(act="gelu_tanh")),
        embed=cn.Tokens(vocab=VOCAB, factor=10, norm=cn.norm.Layer()),
    ),
}
for name, head, ids in (
    (
        "same-input",
        cn.Labels(count=3, pool="last", transform=cn.Transform(act="tanh")),
        {"start": 2, "end": 5},
    ),
    ("same-input-span", cn.Span(), {}),
):
    both = pair()
    HEADED[name] = cn.SameInput(encoder=both.encoder, decoder=both.decoder, head=head, init=START, **ids)
HEADED["shortened"] = single(
    cn.Labels(count=3, pool="mean"), **FUNNEL | {"pooling": cn.Pooling(before=(1, 2))}
)
HEADED["two-heads"] = replace(single(), second=cn.Labels(count=2, transform=cn.Transform(act="tanh")))
BARE = {"headless": cn.SingleStack(tower=tower(), init=START)}
STARTS: dict[str, Model] = {n: replace(single(), init=sample(k)) for n, k in Init.kinds().items()}
SINGLES = (
    {f"encoder/{n}": m for n, m in ENCODERS.items()}
    | {f"decoder/{n}": m for n, m in DECODERS.items()}
    | {f"head/{n}": m for n, m in HEADED.items()}
    | BARE
)
EVERY = SINGLES | {f"pair/{n}": m for n, m in PAIRS.items()} | {f"init/{n}": m for n, m in STARTS.items()}


def ids(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    key = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (rows, length), generator=key)


def run(model: torch.nn.Module, source: torch.Tensor, target: torch.Tensor, **more: object):
    """A model called with what it takes: an EncoderDecoder gets both, a SingleStack the target alone."""
    if isinstance(model, cn.EncoderDecoderModel):
        return model(source, target, **more)
    return model(target, **more)


def has_experts(spec: Model) -> bool:
    return any(isinstance(node, cn.Experts) for node in spec.nodes())


def assert_same_bits(spec: Model, one: torch.Tensor, two: torch.Tensor) -> None:
    """Bit for bit. Not for experts: how many tokens chose one decides how its product rounds."""
    if has_experts(spec):
        assert_close(one, two)
    else:
        assert torch.equal(one, two)


def routed_as(model: torch.nn.Module, *inputs: torch.Tensor, **more: object) -> cn.Tap:
    """A tap that sends every token to the experts that it has in this call of this model.

    For comparisons in fewer bits: a router chooses, so rounding may move a token to other experts.
    """
    if not has_experts(model.spec):
        return cn.OFF
    record = cn.Recorder()
    with torch.no_grad():
        run(model, *inputs, tap=record.tap("*.routing"), **more)
    return cn.Tap("*.routing", lambda address, x: record[address].type_as(x))


# What an amount on all scores of a row does change: features are no scores, pressed keys have it many times.
NO_SOFTMAX_OF_SCORES = (FeatureKernel, _Linformer)


def has_no_effect(spec: Model, name: str) -> bool:
    """Whether a parameter is the bias of keys, where that adds the same amount to every score of a row."""
    return _is_key_bias(name) and _scores_ignore_key_bias(spec, name)


def _positions(spec: Model, name: str) -> cn.Positions:
    """The position scheme of the layer that a parameter belongs to."""
    side, _, layer, *_ = name.split(".")
    tower = spec.tower_fields[side]
    return tower.pattern[int(layer) % len(tower.pattern)].positions or tower.positions


def _is_key_bias(name: str) -> bool:
    return name.endswith((".k.bias", *(f".positions.k.{i}.bias" for i in range(DEPTH))))


def _scores_ignore_key_bias(spec: Model, name: str) -> bool:
    """q.(k + b) adds q.b to every score of a row alike, unless something acts between bias and softmax."""
    if ".positions." in name:  # of distances
        return True
    prefixes = [node for node in spec.nodes() if isinstance(node, cn.PrefixTokens)]
    if any(p.cross if ".cross." in name else True for p in prefixes):  # whose keys have no such bias
        return False
    positions = _positions(spec, name)
    by_distance = isinstance(positions, cn.Disentangled) and "p2c" in positions.terms
    turned = ".cross." not in name and (isinstance(positions, cn.Rope) or by_distance)
    capped = any(isinstance(n, cn.Softmax) and (n.cap or n.sink) for n in spec.nodes())
    normed = any(isinstance(n, cn.Attention) and n.qk_norm for n in spec.nodes())
    module = spec.empty().get_submodule(name.removesuffix(".k.bias"))
    otherwise = isinstance(module.kernel, NO_SOFTMAX_OF_SCORES)
    return not (turned or capped or normed or otherwise)
