"""`tokenizer(...)` against the fast tokenizers of `transformers`: the same names, rows and numbers."""

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trained import KINDS, TEXTS, write
from transformers import AutoTokenizer

from clearhead.errors import InputError
from clearhead.text import BatchEncoding, Tokenizer

CLASSES: dict[str, str | None] = {  # as checkpoints on the Hub name them
    "bytes": "PreTrainedTokenizerFast",
    "unigram": "PreTrainedTokenizerFast",
    "words": "BertTokenizerFast",
    "words, distilled": "DistilBertTokenizerFast",
    "words, left": "BertTokenizerFast",
    "bytes, left": "PreTrainedTokenizerFast",
}
TEXT, OTHER = TEXTS[0], TEXTS[3]
Both = tuple[Tokenizer, Any]


@pytest.fixture(scope="module", params=CLASSES)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    kind, _, left = request.param.partition(", ")
    side = {"padding_side": "left", "truncation_side": "left"} if left == "left" else {}
    name = CLASSES[request.param]
    folder = write(tmp_path_factory.mktemp("x"), kind, tokenizer_class=name, model_max_length=24, **side)
    ours = Tokenizer.read(folder)
    assert ours is not None
    theirs = AutoTokenizer.from_pretrained(folder)
    assert theirs.padding_side == ours.batch_style.padding_side
    return ours, theirs


def same(ours: BatchEncoding, theirs: Any) -> None:
    assert set(ours) == set(theirs.keys())
    for name, rows in theirs.items():
        got = ours[name]
        assert type(got) is type(rows)
        assert got == rows if isinstance(rows, list) else got.tolist() == rows.tolist()
        assert not hasattr(rows, "dtype") or got.dtype == rows.dtype


@pytest.mark.parametrize("padding", [False, True, "longest", "max_length"])
@pytest.mark.parametrize(("truncation", "max_length"), [(False, None), (True, None), (True, 9), (True, 12)])
def test_rows_are_those_of_the_reference(
    both: Both, padding: bool | str, truncation: bool, max_length: int | None
) -> None:
    ours, theirs = both
    options: dict[str, Any] = {"padding": padding, "truncation": truncation, "max_length": max_length}
    same(ours(TEXTS, **options), theirs(TEXTS, **options))
    same(ours(TEXT, **options), theirs(TEXT, **options))
    same(ours(TEXTS, TEXTS[::-1], **options), theirs(TEXTS, TEXTS[::-1], **options))
    same(ours(TEXT, OTHER, **options), theirs(TEXT, OTHER, **options))


@pytest.mark.parametrize("tensors", ["pt", "np"])
def test_tensors_are_those_of_the_reference(both: Both, tensors: str) -> None:
    ours, theirs = both
    for options in ({"padding": True}, {"padding": "max_length", "truncation": True, "max_length": 10}):
        same(ours(TEXTS, return_tensors=tensors, **options), theirs(TEXTS, return_tensors=tensors, **options))
    one = ours(TEXT, return_tensors=tensors)
    same(one, theirs(TEXT, return_tensors=tensors))
    assert isinstance(one.input_ids, torch.Tensor if tensors == "pt" else np.ndarray)


def test_pairs_of_every_length_are_cut_longest_first(both: Both) -> None:
    ours, theirs = both
    words = ["the", "sea", "the", "dog", "the", "fox", "the", "sea", "shore"]
    for first, second, limit in itertools.product((1, 3, 6, 9), (1, 2, 7), range(4, 13)):
        text, pair = " ".join(words[:first]), " ".join(words[:second])
        got = ours(text, pair, truncation=True, max_length=limit)
        assert got == dict(theirs(text, pair, truncation=True, max_length=limit)), (text, pair, limit)
        whole, cut = ours.encode(text, pair), ours.encode(text, pair, max_length=limit)
        assert cut.ids == got.input_ids and cut.cut == len(whole) - len(cut)


def test_without_special_tokens(both: Both) -> None:
    ours, theirs = both
    for options in ({}, {"truncation": True, "max_length": 5}):
        same(
            ours(TEXTS, add_special_tokens=False, **options),
            theirs(TEXTS, add_special_tokens=False, **options),
        )


def test_pieces_of_a_cut_text_still_point_into_it(both: Both) -> None:
    ours, _ = both
    if ours.batch_style.truncation_side == "right":
        cut = ours.encode(TEXT, max_length=6)
        assert [TEXT[p.start : p.end] for p in cut.tokens if p.side == 0] == [
            p.text for p in ours.encode(TEXT).tokens if p.side == 0
        ][: len([p for p in cut.tokens if p.side == 0])]


def test_windows_cover_a_long_text_and_overlap(both: Both) -> None:
    ours, theirs = both
    long = " ".join(TEXTS)
    for length, stride in ((30, 4), (24, 7)):
        got = ours.encode_windows("the sea", long, max_length=length, stride=stride)
        if ours.batch_style.truncation_side == "right":
            want = theirs(
                "the sea",
                long,
                truncation="only_second",
                max_length=length,
                stride=stride,
                return_overflowing_tokens=True,
            )
            assert [each.ids for each in got] == want["input_ids"]
        covered = {i for each in got for p in each.tokens if p.side == 1 for i in range(p.start, p.end)}
        assert {i for i, letter in enumerate(long) if not letter.isspace()} <= covered
    with pytest.raises(InputError, match="leave no room"):
        ours.encode_windows(long, "the sea", max_length=12, stride=4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_encode_gives_can_be_decoded(kind: str, tmp_path: Path) -> None:
    ours = Tokenizer.read(write(tmp_path, kind))
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert ours is not None
    encoding = ours.encode(TEXT)
    want = ours.decode(encoding.ids)
    forms = (
        encoding,
        tuple(encoding.ids),
        torch.tensor(encoding.ids),
        np.array(encoding.ids),
        iter(encoding.ids),
    )
    assert [ours.decode(form) for form in forms] == [want] * len(forms)
    assert ours.decode(list(torch.tensor(encoding.ids))) == want
    assert ours.decode(encoding.ids[1]) == ours.decode(torch.tensor(encoding.ids[1]))
    assert ours.decode(encoding, skip_special_tokens=False) == theirs.decode(encoding.ids)
    batch = ours(TEXTS, padding=True, return_tensors="pt")
    texts = theirs.batch_decode(batch.input_ids, skip_special_tokens=True)
    assert ours.batch_decode(batch.input_ids) == texts
    assert ours.batch_decode(batch.input_ids.numpy()) == ours.batch_decode(ours.encode_batch(TEXTS)) == texts


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([[1, 2], [3]], "batch_decode"),
        (torch.ones(2, 3, dtype=torch.long), "batch_decode"),
        ("text", "takes token ids"),
        (None, "takes token ids"),
        ([1.5], "whole numbers"),
        (["a"], "whole numbers"),
        ([-1], "-1 is not a token id"),
    ],
)
def test_what_cannot_be_decoded_is_one_line(ids: Any, expected: str, tmp_path: Path) -> None:
    ours = Tokenizer.read(write(tmp_path, "words"))
    assert ours is not None
    with pytest.raises(InputError, match=expected):
        ours.decode(ids)


@pytest.mark.parametrize(
    ("texts", "options", "expected"),
    [
        (TEXTS, {"return_tensors": "pt"}, "give padding=True"),
        (TEXTS, {"return_tensors": "tf"}, "return_tensors is 'tf'"),
        (TEXTS, {"padding": "longets"}, "did you mean 'longest'?"),
        (TEXTS, {"padding": 3}, "padding is 3"),
        (TEXTS, {"truncation": True}, "give max_length"),
        (TEXTS, {"padding": "max_length"}, "give max_length"),
        (TEXTS, {"truncation": "only_first", "max_length": 9}, "truncation is 'only_first'"),
        (TEXTS, {"truncation": True, "max_length": 0}, "max_length is 0"),
        (TEXTS, {"truncation": True, "max_length": 1}, "leaves no room for the special tokens"),
        (TEXTS, {"pair": TEXT}, "both be one text, or both a list"),
        (TEXTS, {"pair": TEXTS[:2]}, "10 texts and 2 pairs"),
        (None, {}, "expected a text or a list of texts; given NoneType"),
        ([None], {}, "text must be a string; given NoneType"),
        (7, {}, "given int"),
    ],
)
def test_a_wrong_argument_is_one_line(
    texts: Any, options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    ours = Tokenizer.read(write(tmp_path, "words"))
    assert ours is not None
    with pytest.raises(InputError) as error:
        ours(texts, **options)
    assert expected in str(error.value)


def test_a_tokenizer_without_a_padding_token_says_so(tmp_path: Path) -> None:
    ours = Tokenizer.read(write(tmp_path, "bytes", pad_token=None))
    assert ours is not None and ours.pad is None
    assert len(ours(TEXTS).input_ids) == len(TEXTS)
    with pytest.raises(InputError, match="has no padding token"):
        ours(TEXTS, padding=True)


def test_names_that_a_file_gives_decide_about_segment_types(tmp_path: Path) -> None:
    names = {"model_input_names": ["input_ids", "attention_mask"]}
    for change, expected in (({}, True), (names, False), ({"tokenizer_class": "RobertaTokenizer"}, False)):
        ours = Tokenizer.read(write(tmp_path, "words", **change))
        assert ours is not None and ("token_type_ids" in ours(TEXT, OTHER)) is expected
    typed = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    ours = Tokenizer.read(write(tmp_path, "unigram", **typed))
    assert ours is not None and set(ours(TEXT)) == set(typed["model_input_names"])


def test_a_batch_is_a_dictionary_with_attributes() -> None:
    batch = BatchEncoding(input_ids=torch.ones(1, 2, dtype=torch.long))
    assert batch.input_ids is batch["input_ids"] and dict(**batch) == batch
    assert batch.to("meta").input_ids.device.type == "meta"
    with pytest.raises(AttributeError, match="has no 'labels'; it has input_ids"):
        batch.labels  # noqa: B018
    with pytest.raises(InputError, match="return_tensors='pt'"):
        BatchEncoding(input_ids=[1]).to("cpu")


def test_torch_is_imported_only_for_its_tensors(tmp_path: Path) -> None:
    write(tmp_path, "words")
    program = f"""
import sys
from clearhead.text import Tokenizer
tokenizer = Tokenizer.read({str(tmp_path)!r})
tokenizer(["a sea", "the"], padding=True, return_tensors="np")
print("torch" in sys.modules, type(tokenizer("a", return_tensors="pt").input_ids).__module__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "torch"]
