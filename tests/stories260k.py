"""stories260K, a real LLaMA of 260K parameters, from the files of llama2.c to a Hugging Face folder.

    python tests/stories260k.py FOLDER

writes the folder with its tokenizer, for `clearhead train lm FILE --from FOLDER`.
"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from real import data
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, processors
from tokenizers.models import BPE
from torch import Tensor

from clearhead.store import write_folder


def stories(folder: Path, *, halves: bool) -> None:
    """llama2.c's file as a LLaMA folder; `halves` puts channels that turn together where LLaMA has them."""
    raw = data("stories260k", "stories260K.bin").read_bytes()
    width, hidden, depth, heads, kv_heads, vocab, length = struct.unpack("7i", raw[:28])
    flat, at = torch.from_numpy(np.frombuffer(raw, dtype=np.float32, offset=28).copy()), 0

    def take(*shape: int) -> Tensor:
        nonlocal at
        count = int(np.prod(shape))
        at += count
        return flat[at - count : at].reshape(shape)

    def turned(x: Tensor, count: int) -> Tensor:
        """Rows (2i, 2i + 1) of each head side by side become rows (i, i + half)."""
        split = x.reshape(count, -1, 2, width).transpose(1, 2).reshape(-1, width)
        return split.contiguous() if halves else x

    head, kv = width // heads, width // heads * kv_heads
    tensors = {"model.embed_tokens.weight": take(vocab, width)}
    layers = {
        "input_layernorm": (width,), "self_attn.q_proj": (heads * head, width),
        "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
        "self_attn.o_proj": (width, heads * head),
        "post_attention_layernorm": (width,), "mlp.gate_proj": (hidden, width),
        "mlp.down_proj": (width, hidden), "mlp.up_proj": (hidden, width),
    }  # fmt: skip
    for name, shape in layers.items():
        for i, x in enumerate(take(depth, *shape)):
            if name.endswith(("q_proj", "k_proj")):
                x = turned(x, heads if "q_proj" in name else kv_heads)
            tensors[f"model.layers.{i}.{name}.weight"] = x
    tensors["model.norm.weight"] = take(width)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": width,
        "intermediate_size": hidden, "num_hidden_layers": depth, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": length,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 10000.0,
    }  # fmt: skip
    write_folder(folder, config=config, tensors=tensors)


def pieces() -> list[bytes]:
    raw, at, found = data("stories260k", "tok512.bin").read_bytes(), 4, []
    while at < len(raw):
        (size,) = struct.unpack("i", raw[at + 4 : at + 8])
        found.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    return found


def tokenizer() -> Tokenizer:
    """Its SentencePiece model as BPE: of two pieces that can be joined, those with the best score are."""
    raw, at, scores = data("stories260k", "tok512.bin").read_bytes(), 4, []
    for piece in pieces():
        scores.append(struct.unpack("f", raw[at : at + 4])[0])
        at += 8 + len(piece)
    names = [piece.decode().replace(" ", "▁") for piece in pieces()]
    names[:3] = ["<unk>", "<s>", "</s>"]
    vocab = {name: i for i, name in enumerate(names)}
    splits = [
        (scores[i], name[:cut], name[cut:])
        for name, i in vocab.items()
        for cut in range(1, len(name))
        if i > 258 and name[:cut] in vocab and name[cut:] in vocab
    ]
    merges = [(left, right) for _, left, right in sorted(splits, key=lambda split: -split[0])]
    engine = Tokenizer(BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    engine.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    engine.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names[:3]])
    engine.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return engine


def write(folder: Path) -> Path:
    """The model with its tokenizer."""
    stories(folder, halves=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
