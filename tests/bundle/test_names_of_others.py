"""The spellings of `transformers` and torch that a bundle understands, and what it says about the others."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tolerance import assert_close
from trained import TEXTS, trained
from zoo import EVERY, ids

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.engine import preparation
from clearhead.errors import InputError, UnsupportedError
from clearhead.nn.model import Model
from clearhead.text import Tokenizer

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}


def bert(task: Any = "labels", **config: Any) -> Bundle:
    files = {
        "tokenizer.json": trained("words").to_str().encode(),
        "tokenizer_config.json": b'{"cls_token": "[CLS]", "pad_token": "[PAD]", "tokenizer_class": '
        b'"BertTokenizer", "model_max_length": 64}',
    }
    tokenizer = Tokenizer(files)
    made = ch.build("bert", task=task, vocab_size=tokenizer.vocab, **SMALL, **config)
    made.tokenizer = tokenizer
    return made


# --- a model takes the names of transformers ---


@pytest.mark.parametrize("spec", EVERY.values(), ids=EVERY)
@torch.no_grad()
def test_a_call_by_the_names_of_transformers_gives_the_same_numbers(spec: Model) -> None:
    model, tokens, mask = spec.build(seed=0).eval(), ids(2, 8), torch.ones(2, 8, dtype=torch.long)
    inputs, names = [tokens], ["input_ids"]
    masks, mask_names = [mask], ["attention_mask"]
    if spec.is_encoder_decoder:
        inputs, names = [tokens, ids(2, 5)], ["input_ids", "decoder_input_ids"]
        masks, mask_names = (
            [mask, torch.ones(2, 5, dtype=torch.long)],
            [*mask_names, "decoder_attention_mask"],
        )
    for padding in (0, 2):
        mask[1, 8 - padding :] = 0
        try:
            want = model(*inputs, *masks)
        except UnsupportedError:  # a kernel that takes no padding
            continue
        named = dict(zip([*names, *mask_names], [*inputs, *masks], strict=True))
        assert torch.equal(model(**named), want)
        assert torch.equal(model(*inputs, **{name: named[name] for name in mask_names}), want)
        assert torch.equal(model(**named, use_cache=False), want)
        assert torch.equal(model.hidden(**named), model.hidden(*inputs, *masks))


@torch.no_grad()
def test_what_the_tokenizer_gives_goes_into_the_model_of_both(tmp_path: Path) -> None:
    bundle = bert(id2label={"0": "a", "1": "b"})
    for number, parameter in enumerate(bundle.model.parameters()):
        parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)) / 4)
    bundle.save(tmp_path)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert bundle.tokenizer is not None
    batch = bundle.tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
    want = theirs(**tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits
    assert set(batch) == {"input_ids", "token_type_ids", "attention_mask"}
    assert_close(bundle(**batch), want)
    assert_close(bundle.model(**batch), want)
    untyped = bundle.model(batch.input_ids, batch.attention_mask)
    assert not torch.allclose(untyped, want, atol=1e-4)  # the types matter


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "output_hidden_states",
            True,
            r"bundle\.trace\(text\)\.hidden\(layer\) or a clearhead\.nn\.Recorder",
        ),
        ("output_attentions", True, r"bundle\.trace\(text\)\.attention"),
        ("labels", torch.tensor([1]), "computes no loss"),
        ("use_cache", True, r"cache=model\.cache\(\)"),
        ("return_dict", True, "one tensor"),
        ("position_ids", torch.tensor([[0, 1]]), "positions follow from the mask"),
        ("decoder_input_ids", torch.tensor([[0]]), "takes no decoder_input_ids"),
    ],
)
def test_an_argument_that_only_transformers_has_is_one_line(name: str, value: object, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        bert().model(torch.tensor([[1, 2]]), **{name: value})


def test_a_model_without_segment_types_says_so() -> None:
    gpt = ch.build("gpt2", n_embd=16, n_layer=1, n_head=2, vocab_size=40)
    with pytest.raises(InputError, match=r"no segment types; leave types \(token_type_ids\) out"):
        gpt(torch.tensor([[1, 2]]), token_type_ids=torch.tensor([[0, 0]]))


# --- a bundle has the methods of a model ---


def test_saving_is_a_method(tmp_path: Path) -> None:
    bundle = bert()
    bundle.save(tmp_path / "one")
    bundle.save_pretrained(str(tmp_path / "two"))
    ch.save(bundle, tmp_path / "three")
    for file in (tmp_path / "three").iterdir():
        assert [(tmp_path / name / file.name).read_bytes() for name in ("one", "two")] == [
            file.read_bytes()
        ] * 2


def test_a_bundle_moves_as_a_module_does(tmp_path: Path) -> None:
    bundle = bert()
    assert (bundle.device, bundle.dtype) == (torch.device("cpu"), torch.float32)
    assert bundle.to(torch.float64) is bundle and bundle.dtype == torch.float64
    assert bundle.to("cpu", torch.bfloat16).dtype == torch.bfloat16
    assert bundle.to("float32").dtype == torch.float32
    assert bundle.to(torch.device("meta")).device.type == "meta"
    with pytest.raises(InputError, match="device is 'cuda:7', which this machine does not have"):
        bundle.to("cuda:7")
    bert().save(tmp_path)
    moved = ch.load(tmp_path, precision="int8").to(torch.bfloat16)  # with its weights, without the packs
    assert moved.dtype == torch.bfloat16 and preparation(moved.model) is None


def test_a_bundle_is_called_as_its_model() -> None:
    bundle, tokens = bert(), torch.tensor([[1, 2, 3]])
    assert torch.equal(bundle(tokens), bundle.model(tokens))
    for wrong in ("a text", ["a text"], [[1, 2]]):
        with pytest.raises(InputError, match="called with tensors"):
            bundle(wrong)


def test_the_arguments_of_from_pretrained(tmp_path: Path) -> None:
    bert().save(tmp_path)
    assert ch.from_pretrained is ch.load
    for value in (torch.bfloat16, "bfloat16"):
        assert ch.from_pretrained(tmp_path, torch_dtype=value).dtype == torch.bfloat16
    assert ch.load(tmp_path, torch_dtype="auto", device_map="auto").dtype == torch.float32
    for place in ("cpu", "auto", {"": "cpu"}, torch.device("cpu"), None):
        assert ch.load(tmp_path, device_map=place).device.type == "cpu"
    assert ch.load(tmp_path, device="auto").device.type == "cpu"


def test_auto_is_the_best_device_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake second device: what `auto` chose is where the weights go."""
    bert().save(tmp_path)
    monkeypatch.setattr("clearhead.bundle.loading.choose_device", lambda name: {"auto": "meta"}[name])
    assert ch.load(tmp_path, device="auto").device.type == "meta"
    assert ch.load(tmp_path, device_map="auto").device.type == "meta"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"device": "cuda"}, "this machine does not have; it has cpu"),
        ({"device_map": "cuda:1"}, "this machine does not have"),
        ({"device_map": 0}, "device is 'cuda:0'"),
        ({"device_map": {"a": "cpu", "b": "cuda"}}, "a model is on one device here"),
        ({"device_map": "cpu", "device": "cpu"}, "device_map and device are the same"),
        ({"torch_dtype": "float32", "dtype": "float32"}, "torch_dtype and dtype are the same"),
        ({"torch_dtype": "float3"}, "did you mean 'float32'?"),
        ({"num_labels": 3}, "head='labels', labels="),
        ({"load_in_8bit": True}, "precision='int8'"),
        ({"trust_remote_code": True}, "no code of a checkpoint is run"),
        ({"revision": "main"}, "org/name@main"),
        ({"quantise": "int8"}, "did you mean 'quantize'?"),
    ],
)
def test_an_argument_that_is_not_understood_names_ours(
    options: dict[str, Any], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    bert().save(tmp_path)
    with pytest.raises(InputError) as error:
        ch.load(tmp_path, **options)
    assert expected in str(error.value)


def test_the_packages_are_there_without_an_import() -> None:
    assert ch.nn.Recorder is not None and ch.tasks is not None and ch.text.Tokenizer is Tokenizer


# --- what is no text ---


@pytest.mark.parametrize("wrong", [None, 5, [None], [5], b"bytes", {"a": 1}, [["a"]]])
def test_what_is_no_text_is_one_line(wrong: Any) -> None:
    gpt = ch.build("gpt2", n_embd=16, n_layer=1, n_head=2, vocab_size=500)
    gpt.tokenizer = Tokenizer({"tokenizer.json": trained("bytes").to_str().encode()})
    embedder = bert("hidden")
    calls = [gpt.generate, gpt.answer, bert().predict, embedder.embed, embedder.tokenizer]
    calls += [lambda x: list(gpt.stream(x)), lambda x: embedder.similarity(x, "a")]
    for call in calls:
        with pytest.raises(InputError):
            call(wrong)


@pytest.mark.parametrize("wrong", [None, 5.5, {"a": 1}, ["a"], [None]])
def test_what_cannot_be_traced_is_one_line(wrong: Any) -> None:
    with pytest.raises(InputError):
        bert().trace(wrong)


def test_the_first_argument_of_attention_may_be_a_layer() -> None:
    trace = bert("hidden").trace("the sea")
    assert torch.equal(trace.attention(1), trace.attention("self", layer=1))
    assert torch.equal(trace.attention(1, 3), trace.attention(layer=1, head=3))
    assert torch.equal(trace.attention(-1, head=2), trace.attention(layer=1, head=2))
    with pytest.raises(InputError, match="there is no layer 7 in self attention"):
        trace.attention(7)
    with pytest.raises(InputError, match="write layer=1, head=2"):
        trace.attention(1, 2, 3)
