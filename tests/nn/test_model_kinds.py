"""A third kind of model, made here: two towers side by side, one of which reads frames of numbers, not ids.

Nothing outside `nn` may know how many kinds there are; so counting, cost, pictures, taps, ablation, `certify`
and rounding must work for a kind nobody has thought of.
"""

import ast
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from tolerance import assert_close
from torch import Tensor, nn

from clearhead import nn as cn
from clearhead.bundle import Bundle
from clearhead.certify.invariances import alone
from clearhead.certify.sample import SampleBatch
from clearhead.engine import prepare_model
from clearhead.errors import InputError
from clearhead.generate import Prompt, generate
from clearhead.lens import open_trace
from clearhead.lens.ablate import ablate
from clearhead.lens.cost import cost
from clearhead.lens.describe import sentence
from clearhead.lens.pictures import architecture
from clearhead.lens.record import TraceInput, attention_addresses, record_forward
from clearhead.nn.context import States
from clearhead.nn.embed import Embed, Embedding
from clearhead.nn.init import Init, Normal

ROOT = Path(__file__).parents[2] / "clearhead"
KINDS = {"SingleStack", "SingleStackModel", "EncoderDecoder", "EncoderDecoderModel"}


@dataclass(frozen=True, kw_only=True)
class FrameInput(Embed):
    """Frames of `bands` numbers each, projected to the width of the stream."""

    bands: int

    def example(self, batch: int, length: int, generator: torch.Generator) -> Tensor:
        return torch.randn(batch, length, self.bands, generator=generator)

    def build(self, width: int) -> Embedding:
        return _Frames(self.bands, width)


class _Frames(Embedding):
    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(bands, width)

    def forward(self, frames_BTF: Tensor, types_BT: Tensor | None) -> Tensor:
        x: Tensor = self.project(frames_BTF)
        return x

    def finish(self, x_BTD: Tensor) -> Tensor:
        return x_BTD


@dataclass(frozen=True, kw_only=True)
class SideBySide(cn.Model):
    """Texts and sounds as vectors; the answer is how alike they are."""

    text: cn.Tower
    sound: cn.Tower
    init: Init = field(default_factory=Normal)

    @property
    def towers(self) -> dict[str, cn.Tower]:
        return {"text": self.text, "sound": self.sound}

    def assemble(self) -> cn.TransformerModel:
        return _SideBySide(self)


class _SideBySide(cn.TransformerModel):
    def __init__(self, spec: SideBySide) -> None:
        super().__init__()
        self.spec, self.head, self.second = spec, None, None
        self.text, self.sound = spec.text.build(), spec.sound.build()

    def states(self, ids_BT: Tensor, frames_BTF: Tensor, *, tap: cn.Tap = cn.OFF) -> States:
        texts, sounds = self.text(ids_BT, tap=tap.at("text")), self.sound(frames_BTF, tap=tap.at("sound"))
        return States((texts.x_BTD.mean(1) * sounds.x_BTD.mean(1))[:, None])


def tower(embed: Embed, depth: int) -> cn.Tower:
    block = cn.Block(attention=cn.Attention(heads=2), feedforward=cn.MLP(hidden=32), norm=cn.norm.Layer())
    return cn.Tower(width=16, depth=depth, embed=embed, positions=cn.Learned(length=64), block=block)


SPEC = SideBySide(text=tower(cn.Tokens(vocab=50), 2), sound=tower(FrameInput(bands=8), 3))


def bundle() -> Bundle:
    return Bundle(SPEC, SPEC.build(seed=0).eval())


def test_it_answers_for_itself() -> None:
    assert list(SPEC.towers) == list(SPEC.tower_fields) == list(bundle().model.stacks) == ["text", "sound"]
    assert SPEC.max_length == 64 and SPEC.head_tower is SPEC.sound
    assert not (SPEC.generates or SPEC.decodes or SPEC.is_encoder_decoder)
    assert bundle().labels == {}
    with pytest.raises(InputError, match="no encoder beside"):
        bundle().model.encode(torch.zeros(1, 2, dtype=torch.long))


def test_its_cost_is_counted() -> None:
    found = cost(SPEC, batch=2, length=8)
    assert found.parameters == SPEC.count() == sum(p.numel() for p in bundle().model.parameters())
    assert {part.split(".")[0] for part in found.parts} == {"text", "sound"}
    assert found.flops > 0 and found.cache == 0
    more = replace(SPEC, sound=replace(SPEC.sound, depth=6))
    assert cost(more, batch=2, length=8).flops > found.flops


def test_it_is_described_and_drawn(tmp_path: Path) -> None:
    assert all("16" in sentence(side) for side in SPEC.towers.values())
    assert architecture(SPEC, "side by side").save(tmp_path / "a.svg").read_text().startswith("<?xml")


def test_taps_records_and_ablation_reach_both_towers() -> None:
    made = bundle()
    ids, frames = SampleBatch.of(made).inputs
    found = record_forward(made.model, TraceInput(ids[0].tolist(), [], target_ids=frames[0]))
    assert found.depth("text") == 2 and found.depth("sound") == 3
    assert attention_addresses(made.model) == {"self": "text.blocks.{}.attn", "sound": "sound.blocks.{}.attn"}
    assert_close(found.answer, made.model(ids[:1], frames[:1])[0])
    for word in ("text.attn:0", "sound.head:2.1"):
        changed = ablate(made.model, [word])(ids, frames)
        assert not torch.equal(changed, made.model(ids, frames)), word


def test_rows_are_certified_alone_and_in_a_batch() -> None:
    made = bundle()
    assert (found := alone(made, SampleBatch.of(made))) is not None and found < 1e-6


def test_int8_rounds_both_towers() -> None:
    made, sample = bundle(), SampleBatch.of(bundle())
    before = sample.answer(made)
    after = sample.answer(replace(made, model=prepare_model(made.model, "int8")))
    assert 0 < float((after - before).abs().max()) < 0.1 * float(before.abs().max())


def test_nothing_outside_asks_for_the_kind_of_a_model() -> None:
    """Families, the textbook Transformer and lessons build models of these kinds; nobody else names them."""
    hits = []
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if module.startswith("nn/"):
            continue
        builds = module.startswith(("families/", "primer/", "learn/"))
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            asked = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
            names = (
                {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} if asked or not builds else set()
            )
            if names & KINDS:
                hits.append(f"{module}:{getattr(node, 'lineno', 0)}")
    assert hits == []


def test_two_inputs_are_traced_saved_and_opened(tmp_path: Path) -> None:
    made = bundle()
    ids, frames = (x[0] for x in SampleBatch.of(made).inputs)
    with pytest.raises(InputError, match="an input for each of text, sound"):
        made.trace(ids)
    trace = made.trace(ids, frames)
    assert trace.attention("sound").shape[:2] == (3, 2) and trace.head_side == "sound"
    again = open_trace(trace.save(tmp_path / "a.safetensors"))
    assert_close(again.attention("sound"), trace.attention("sound"))
    assert torch.equal(again.input.target_ids, frames)
    with pytest.raises(InputError, match=r"cannot generate text; it gives hidden states"):
        made.generate("a text")


def test_ids_that_are_floats_are_ids_for_a_model_that_reads_ids() -> None:
    spec = cn.SingleStack(tower=SPEC.text)
    made = Bundle(spec, spec.build(seed=0).eval())
    one, two = made.trace(torch.tensor([3.0, 7.0])), made.trace([3, 7])
    assert_close(one.answer, two.answer)


def test_frames_in_tokens_out() -> None:
    """As speech recognition does: the encoder reads frames, the decoder generates ids."""
    frames = tower(FrameInput(bands=8), 1)
    words = tower(cn.Tokens(vocab=50), 1)
    cross = replace(words.block, cross=cn.Attention(heads=2))
    spec = cn.EncoderDecoder(
        encoder=frames, decoder=replace(words, causal=True, block=cross),
        head=cn.TokenHead(vocab=50), shared=False,
    )  # fmt: skip
    untied = cn.TokenHead(vocab=50, tied=False)
    assert spec.generates and not cn.SingleStack(tower=replace(frames, causal=True), head=untied).generates
    model = spec.build(seed=0).eval()
    source = frames.embed.example(2, 6, torch.Generator().manual_seed(0))
    start = torch.zeros(2, 1, dtype=torch.long)
    with torch.no_grad():
        made = [row[0].ids for row in generate(model, Prompt(source, None, start), limit=4).finish()]
        alone = [
            generate(model, Prompt(x[None], None, start[:1]), limit=4).finish()[0][0].ids for x in source
        ]
    assert made == alone and all(len(ids) == 4 for ids in made)
