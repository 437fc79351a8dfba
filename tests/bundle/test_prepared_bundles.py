"""Everything a bundle can do, done by a prepared one: looking inside, edits, heads, training, drafts, files.

A prepared bundle is compared with its plain twin: the same bundle, whose weights are the matrices that the
products multiply by.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import zoo
from ggufs import llama, write
from packed import INPUT_ROUNDING, apart, folder_of, plain_twin
from references import KNOWN, REFERENCES
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle import Bundle, with_head
from clearhead.certify import certify
from clearhead.engine import PRECISIONS, preparation, prepare_model
from clearhead.errors import InputError
from clearhead.store import write_folder

precisions = pytest.mark.parametrize("precision", PRECISIONS)
TEXT = "The quick brown fox"
GOLDEN = Path(__file__).parents[1] / "golden" / "transfo_xl.safetensors"
TRANSLATOR = Path(ch.__file__).parent / "serve/example/translator"


def twin_of(bundle: Bundle) -> Bundle:
    return replace(bundle, model=plain_twin(bundle.model))


def ids_of(bundle: Bundle) -> Tensor:
    return torch.tensor([bundle.encode(TEXT)])


def run(bundle: Bundle) -> Tensor:
    ids = ids_of(bundle)
    with torch.inference_mode():
        return bundle(ids, ids) if bundle.spec.is_encoder_decoder else bundle(ids)


# --- looking inside ---


@precisions
@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_parts_are_switched_off_as_in_a_plain_model(family: str, precision: str, tmp_path: Path) -> None:
    bundle = ch.load(folder_of(family, tmp_path), precision=precision)
    twin, whole = twin_of(bundle), run(bundle)
    head, mlp = ("encoder.head:0.1", "decoder.mlp:1") if family == "t5" else ("head:0.1", "mlp:1")
    for part in (head, mlp, "positions", "norm", "attn", "residual"):
        found, wanted = run(bundle.without(part)), run(twin.without(part))
        assert not torch.equal(found, whole), part
        assert apart(found, wanted) < 2 * INPUT_ROUNDING[precision], part
    site = f"{'decoder' if family == 't5' else 'tower'}.blocks.1.attn.out"
    for value in (0.0, "mean", "x0.5", torch.ones(48)):
        found, wanted = run(bundle.without(set={site: value})), run(twin.without(set={site: value}))
        assert not torch.equal(found, whole)
        assert apart(found, wanted) < 2 * INPUT_ROUNDING[precision]
    assert torch.equal(run(bundle), whole), "the bundle itself is as it was"


@precisions
@pytest.mark.parametrize("family", ["gpt2", "bert", "t5"])
def test_a_trace_shows_what_the_prepared_model_computes(family: str, precision: str, tmp_path: Path) -> None:
    bundle = ch.load(folder_of(family, tmp_path), precision=precision)
    target = {"target": "a dog"} if family == "t5" else {}
    found, wanted = (each.trace(TEXT, **target) for each in (bundle, twin_of(bundle)))
    assert found.tokens == wanted.tokens and found.kinds == wanted.kinds
    for kind in found.kinds:
        assert apart(found.attention(kind), wanted.attention(kind)) < INPUT_ROUNDING[precision]
        assert torch.allclose(found.attention(kind).sum(-1), torch.ones(()), atol=1e-5)
    lens, plain = found.logit_lens(top=3), wanted.logit_lens(top=3)
    # Two tokens of nearly the same probability may change places.
    assert float((lens.probabilities - plain.probabilities).abs().max()) < INPUT_ROUNDING[precision]
    if family != "t5":
        last = run(bundle).float().softmax(-1)[0]
        assert torch.allclose(lens.probabilities[-1], last.topk(3).values, atol=1e-4)
    found.save(tmp_path / "trace.html")


@precisions
def test_generated_tokens_and_beams_can_be_traced(precision: str, tmp_path: Path) -> None:
    bundle = ch.load(folder_of("gpt2", tmp_path), precision=precision)
    trace = bundle.trace(TEXT, generate=True, max_new_tokens=4)
    assert bundle.generate(TEXT, max_new_tokens=4, do_sample=False) == "".join(
        f.token.text for f in trace.frames
    )
    assert bundle.trace(TEXT, beams=3, max_new_tokens=3).tree is not None


@precisions
def test_ablations_of_a_prepared_translator_are_those_of_the_plain_one(precision: str) -> None:
    bundle = ch.load(TRANSLATOR, precision=precision)
    text = "three brave dogs help the old horse"
    assert bundle.generate(text) == "三只勇敢的狗帮助那匹年老的马"
    assert bundle.without("positions").generate(text) != bundle.generate(text)
    assert bundle.without("encoder.head:0.0").generate(text)


# --- other models from it ---


@precisions
@pytest.mark.parametrize(
    "edit", [{"Attention.kernel": "Window(4)"}, {"Attention.kernel": "Linear"}, {"Tower.depth": 2}]
)
def test_an_edited_model_is_prepared(edit: dict[str, object], precision: str, tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    if "Tower.depth" in edit:
        folder, edit = folder_of("gpt2", tmp_path, n_layer=2), {"Block.order": "parallel"}
    bundle = ch.load(folder, edit=edit, precision=precision)
    assert apart(run(bundle), run(twin_of(bundle))) < INPUT_ROUNDING[precision]
    assert not torch.equal(run(bundle), run(ch.load(folder, precision=precision)))
    bundle.save(tmp_path / "again")
    assert torch.equal(run(ch.load(tmp_path / "again", precision=precision)), run(bundle))


@precisions
def test_another_head_is_put_on_the_plain_weights(precision: str, tmp_path: Path) -> None:
    folder = folder_of("bert", tmp_path)
    prepared = with_head(ch.load(folder, precision=precision), "labels", ["a", "b"])
    plain = with_head(ch.load(folder), "labels", ["a", "b"])
    assert preparation(prepared.model) is None
    state = plain.model.state_dict()
    assert all(torch.equal(x, state[name]) for name, x in prepared.model.state_dict().items())
    prepared.prepare(precision)
    assert apart(run(prepared), run(twin_of(prepared))) < INPUT_ROUNDING[precision]


def test_a_prepared_bundle_trains_as_the_plain_one(tmp_path: Path) -> None:
    """In float32 and with all its weights, bit for bit; and stays prepared itself."""
    rows = [
        {"text": f"{word} fox {i}", "label": label}
        for i in range(12)
        for word, label in (("quick", "fast"), ("lazy", "slow"))
    ]
    settings = {"epochs": 1, "batch_size": 8, "train.schedule.warmup": 1}
    folder = folder_of("bert", tmp_path)
    prepared = ch.load(folder, precision="int8")
    before = run(prepared)
    results = [ch.train(bundle, rows, **settings) for bundle in (ch.load(folder), prepared)]
    one, two = (result.model.state_dict() for result in results)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert preparation(results[1].model) is None and results[0].scores == results[1].scores
    assert preparation(prepared.model) is not None and torch.equal(run(prepared), before)
    results[1].prepare("int8").predict("a quick dog")


# --- generating ---


@precisions
def test_a_prepared_draft_changes_no_text(precision: str, tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    for target in (ch.load(folder), ch.load(folder, precision=precision)):
        text = target.generate(TEXT, max_new_tokens=12, do_sample=False)
        for draft in (ch.load(folder, precision=precision), ch.load(folder)):
            assert target.generate(TEXT, max_new_tokens=12, do_sample=False, assistant=draft) == text


@pytest.mark.parametrize("family", [name for name, each in KNOWN.items() if each.mode != "bidirectional"])
def test_every_family_generates_in_every_precision(family: str, tmp_path: Path) -> None:
    """In float32 what it generates unprepared; in each, the tokens that its own logits say."""
    REFERENCES[f"{family}/tokens/plain"].files(tmp_path)
    prompt = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(0))
    settings = {"max_new_tokens": 6, "eos_token_id": 2, "decoder_start_token_id": 2, "do_sample": False}
    wanted = ch.load(tmp_path).generate_ids(prompt, **settings)
    for precision in PRECISIONS:
        bundle = ch.load(tmp_path, precision=precision)
        found = bundle.generate_ids(prompt, **settings)
        if precision == "float32":
            assert torch.equal(found, wanted)
        with torch.inference_mode():
            pair = bundle.spec.is_encoder_decoder
            logits = bundle.model(prompt, found[:, :-1]) if pair else bundle.model(found[:, :-1])
        first = 1 if pair else prompt.shape[1]
        chosen = logits[:, first - 1].gather(1, found[:, first : first + 1])
        nearly = logits[:, first - 1].max(1).values - chosen[:, 0]
        assert float(nearly.max()) < 0.05 * float(logits.std()), precision


@precisions
@torch.no_grad()
def test_segment_memory(precision: str, tmp_path: Path) -> None:
    """Transformer-XL in segments, against the numbers of the package that had it."""
    with safe_open(GOLDEN, "pt") as file:
        config = json.loads(file.metadata()["published"])
    golden = {
        k.removeprefix("published/"): x for k, x in load_file(GOLDEN).items() if k.startswith("published/")
    }
    config |= {"model_type": "transfo-xl", "architectures": ["TransfoXLLMHeadModel"]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    weights = {k.removeprefix("weights/"): x for k, x in golden.items() if k.startswith("weights/")}
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    bundle = ch.load(tmp_path, precision=precision)
    runs = []
    for model in (bundle.model, plain_twin(bundle.model)):
        memory = model.segment_memory(config["mem_len"])
        runs.append(torch.cat([model(part, cache=memory) for part in golden["ids"].split(5, dim=1)], dim=1))
    assert apart(*runs) < INPUT_ROUNDING[precision]
    if precision == "float32":
        torch.testing.assert_close(runs[0], golden["segments/scores"], atol=1e-5, rtol=1e-5)


@precisions
@pytest.mark.parametrize(
    "name", ["decoder/reversible", "decoder/kernel-Linear", "encoder/kernel-LSH", "decoder/mixer-gru"]
)
@torch.inference_mode()
def test_other_token_mixers(name: str, precision: str) -> None:
    """Step by step with their own kind of cache, where they have one."""
    spec = zoo.EVERY[name]
    model = prepare_model(spec.build(), precision)
    ids = zoo.ids(2, 9)
    whole = model(ids)
    assert apart(whole, plain_twin(model)(ids)) < INPUT_ROUNDING[precision]
    if name.startswith("decoder"):
        cache = model.cache(9)
        steps = torch.cat([model(ids[:, i : i + 1], cache=cache) for i in range(9)], 1)
        assert apart(steps, whole) < 0.5 * INPUT_ROUNDING[precision]


# --- files ---


@precisions
def test_a_saved_prepared_model_is_certified_and_opened_by_transformers(
    precision: str, tmp_path: Path
) -> None:
    original = REFERENCES["llama/tokens/plain"].files(tmp_path / "model")
    ch.load(tmp_path / "model", precision=precision).save(tmp_path / "again")
    assert certify(tmp_path / "again").passed
    ids = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "again")(ids).logits
        assert torch.equal(theirs, original(ids).logits)


@precisions
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_shards_are_saved_back_bit_for_bit(precision: str, dtype: torch.dtype, tmp_path: Path) -> None:
    REFERENCES["qwen2/tokens/plain"].files(tmp_path / "model", dtype)
    stored = load_file(tmp_path / "model/model.safetensors")
    config = json.loads((tmp_path / "model/config.json").read_text())
    write_folder(tmp_path / "shards", config=config, tensors=stored, shard_bytes=8_000)
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 3
    ch.load(tmp_path / "shards", precision=precision).save(tmp_path / "again")
    saved = load_file(tmp_path / "again/model.safetensors")
    assert saved.keys() == stored.keys()
    assert all(saved[name].dtype == x.dtype and torch.equal(saved[name], x) for name, x in stored.items())


@precisions
def test_a_gguf_file_is_prepared(precision: str, tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", llama())
    bundle = ch.load(tmp_path / "model.gguf", precision=precision)
    assert apart(run(bundle), run(twin_of(bundle))) < INPUT_ROUNDING[precision]


def test_what_it_is_called_and_costs(tmp_path: Path) -> None:
    folder = folder_of("gpt2", tmp_path)
    plain, bundle = ch.load(folder), ch.load(folder, precision="int8")
    assert repr(plain) == repr(bundle) and bundle.dtype == torch.float32
    assert (
        bundle.cost().parameters == plain.cost().parameters and bundle.cost().weights < plain.cost().weights
    )
    assert isinstance(bundle.model, cn.TransformerModel)


@pytest.mark.parametrize("threads", [0, -1, 10**6, "two", 1.5, True])
def test_threads_are_those_that_there_are(threads: Any) -> None:
    """A million threads would end the process."""
    bundle = ch.build("gpt2", n_embd=16, n_head=2, n_layer=1, vocab_size=30, n_positions=20)
    with pytest.raises(InputError, match=f"threads is {threads}; expected 1 to"):
        bundle.prepare("float32", threads=threads)
