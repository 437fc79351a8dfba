"""Real data, where it lies beside the project: shapes as a person would name them, padding under 5 %."""

import os
from pathlib import Path

import numpy as np
import pytest

from clearhead.data import (
    Buckets,
    check_data,
    detect_schemas,
    documents,
    pack,
    plan_rows,
    read_rows,
    read_splits,
)
from clearhead.text import train_tokenizer

DATA = Path(os.environ.get("CLEARHEAD_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no real data at {DATA}; name its folder in CLEARHEAD_DATA"
)


def place(name: str) -> Path:
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not in {DATA}")
    return DATA / name


SHAPES = {
    "sst2": (6920, "label (text=column1, label=column2)"),
    "wnut17": (3394, "tags (tokens, tags)"),
    "wikigold/wikigold.conll.txt.xz": (1696, "tags (tokens, tags)"),
    "tatoeba-cmn-eng/cmn.txt.xz": (29155, "pair (src=column1, tgt=column2)"),
    "docs-en-zh/django_zh.tsv.xz": (26752, "pair (src=column2, tgt=column3)"),
    "ui-strings-en-zh/zh_TW.tsv.xz": (16618, "pair (src=column2, tgt=column3)"),
    "sick/SICK_train.txt.xz": (4500, "label (text=sentence_A, second=sentence_B, label=entailment_judgment)"),
    "squad-subset/xquad.zh.json.xz": (1190, "answer (question, context, answers)"),
    "cmrc2018-zh/cmrc2018_trial.json.xz": (1002, "answer (question, context, answers)"),
    "gsm8k/test.jsonl.xz": (1319, "prompt (prompt=question, completion=answer)"),
    "mbpp/mbpp.jsonl.xz": (974, "prompt (prompt=text, completion=code)"),
    "humaneval/HumanEval.jsonl.gz": (164, "prompt (prompt, completion=canonical_solution)"),
    "conala/conala-test.json.xz": (500, "prompt (prompt=intent, completion=snippet)"),
    "instructions/alpaca_5000.json.xz": (5000, "alpaca (instruction, input, output)"),
    "tiny-shakespeare/input.txt.xz": (40000, "text (text)"),
    "wikitext-2/wiki.test.tokens.xz": (4358, "text (text)"),
    "emoji-captions/captions.tsv": (1911, "pair (src=en, tgt=zh)"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_real_files(name: str) -> None:
    rows, shape = SHAPES[name]
    source = read_rows(place(name))
    assert (len(source), str(detect_schemas(source)[0])) == (rows, shape)


def test_parallel_files_with_four_languages() -> None:
    folder = place("multi30k")
    splits = read_splits(folder)
    assert {name: len(source) for name, source in splits.items()} == {
        "train": 29000,
        "valid": 1014,
        "test": 3532,
    }
    assert splits["train"].columns == ("cs", "de", "en", "fr")
    assert str(detect_schemas(splits["train"], {"src": "en", "tgt": "de"})[0]) == "pair (src=en, tgt=de)"
    pair = read_rows([folder / "train.en.gz", folder / "train.de.gz"])
    assert pair[0]["en"] == "Two young, White males are outside near many bushes."


def test_checks_of_real_files() -> None:
    report = check_data(read_rows(place("squad-subset/xquad.zh.json.xz")))
    assert report.usable == 1190 and report.why == ""
    report = check_data(read_rows(place("sst2")))
    assert report.labels == {"1": 3610, "0": 3310}


def pairs(*names: str, mapping=None) -> tuple[list[str], list[str]]:
    source = read_rows([place(name) for name in names] if len(names) > 1 else place(names[0]))
    shape, *_ = detect_schemas(source, mapping)
    rows = [shape.read(row) for row in source]
    return [row["src"] for row in rows], [row["tgt"] for row in rows]


def subwords(*columns: list[str]) -> np.ndarray:
    """Lengths in tokens of a vocabulary that was trained on the texts themselves, with both ends."""
    tokenizer = train_tokenizer([text for column in columns for text in column], vocab=8000)
    return np.array([[len(e) + 2 for e in tokenizer.encode_batch(column)] for column in columns]).T


@pytest.mark.parametrize("tokens", [2048, 4096, 8192])
@pytest.mark.parametrize("name", ["multi30k", "tatoeba-cmn-eng", "sst2", "wnut17"])
def test_padding_is_under_5_percent(name: str, tokens: int, lengths_of) -> None:
    lengths = lengths_of(name)
    buckets = Buckets(lengths, tokens=tokens, seed=0)
    assert buckets.padding() < 0.05
    naive = len(lengths) * int(lengths.max(0).sum())
    assert 1 - lengths.sum() / naive > 0.5  # what padding everything to the longest would cost


@pytest.fixture(scope="module")
def lengths_of():
    found: dict[str, np.ndarray] = {}

    def read(name: str) -> np.ndarray:
        if name not in found:
            found[name] = {
                "multi30k": lambda: subwords(*pairs("multi30k/train.en.gz", "multi30k/train.de.gz")),
                "tatoeba-cmn-eng": lambda: subwords(*pairs("tatoeba-cmn-eng/cmn.txt.xz")),
                "sst2": lambda: subwords([row["column1"] for row in read_rows(place("sst2"))]),
                "wnut17": lambda: subwords([" ".join(row["tokens"]) for row in read_rows(place("wnut17"))]),
            }[name]()
        return found[name]

    return read


def test_packing_real_paragraphs_wastes_under_5_percent() -> None:
    source = read_rows(place("wikitext-2/wiki.test.tokens.xz"))
    shape, *_ = detect_schemas(source)
    texts = list(documents(source, shape, by="paragraph"))
    tokenizer = train_tokenizer(texts, "byte-bpe", vocab=4000)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    rows = plan_rows([len(each) for each in ids], 256)
    assert pack(ids, rows, 256, pad=0).waste < 0.05
