"""Tasks: batches as functions of numbers, losses that padding does not touch, scores that say what is."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from small_tasks import HIDE, MODELS, TEXTS, causal, masked, pretrain, translate
from tolerance import assert_close
from zoo import VOCAB, pair, single

from clearhead import nn as cn
from clearhead.data.next_sentence import SentencePair, sentence_pairs, sentences
from clearhead.data.packing import IGNORE_INDEX
from clearhead.errors import DataError, InputError
from clearhead.tasks.causal import CausalLM
from clearhead.tasks.classification import (
    TextClassification,
)
from clearhead.tasks.masked import BertPretraining
from clearhead.tasks.question_answering import MAX_ANSWER_TOKENS, QAExample, QuestionAnswering, best_span
from clearhead.tasks.text_to_text import TextPair

every = pytest.mark.parametrize("name", MODELS)


def assert_same(one: object, two: object) -> None:
    """Two batches, field by field; some have no types."""
    for x, y in zip(vars(one).values(), vars(two).values(), strict=True):
        assert torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y


@every
def test_a_batch_is_a_function_of_numbers(name: str) -> None:
    make, _ = MODELS[name]
    one, two = make(), make()
    for step, micro in ((1, 0), (7, 0), (40, 0), (1, 0)):
        a, b = one.batch(step, micro), two.batch(step, micro)
        assert_same(a, b)
        assert a.targets > 0


@every
def test_the_loss_is_a_sum_over_targets_and_can_be_learned(name: str) -> None:
    make, spec = MODELS[name]
    task, model = make(), spec.build(dtype=torch.float64)
    batch = task.batch(1, 0)
    first = float(task.loss(model, batch).detach()) / batch.targets
    assert 0.3 * math.log(3) < first < 30
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        (task.loss(model, batch) / batch.targets).backward()
        optimizer.step()
    assert float(task.loss(model, batch).detach()) / batch.targets < 0.3 * first


@every
def test_scores_hold_the_mean_loss_and_what_counts(name: str) -> None:
    make, spec = MODELS[name]
    task, model = make(), spec.build()
    scores = task.score(model, "valid")
    assert task.better.metric in scores and all(math.isfinite(x) for x in scores.values())
    assert scores == task.score(model, "valid")
    with pytest.raises(DataError, match="there is no split 'test'"):
        task.score(model, "test")


@every
def test_the_parts_of_the_steps_are_the_batches_one_after_another(name: str) -> None:
    """Batches gathered into steps are the same batches: none twice, none left out, over three epochs."""
    make, _ = MODELS[name]
    whole, split = make(), make(parts=3)
    for number in range(60):
        assert_same(whole.batch(number + 1, 0), split.batch(number // 3 + 1, number % 3))


@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=12).filter(lambda sizes: max(sizes) > 1),
    length=st.integers(1, 9),
    rows=st.integers(1, 4),
    parts=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_every_epoch_asks_for_every_next_token_once(
    lengths: list[int], length: int, rows: int, parts: int, seed: int
) -> None:
    """However texts fall into rows, rows into batches and batches into steps. No batch is empty."""
    texts, first = [], 1
    for size in lengths:  # no token occurs twice, so that each is its own name
        texts.append(list(range(first, first + size)))
        first += size
    task = CausalLM({"train": texts}, length=length, rows=rows, pad=0, seed=seed, parts=parts)
    wanted = sorted(token for text in texts for token in text[1:])
    batches = (task.batch(step, micro) for step in count(1) for micro in range(parts))
    for _ in range(4):
        asked: list[int] = []
        while len(asked) < len(wanted):
            batch = next(batches)
            assert batch.targets > 0
            asked += batch.labels_BT[batch.labels_BT != IGNORE_INDEX].tolist()
        assert sorted(asked) == wanted


@pytest.mark.parametrize("name", ["causal", "translate", "classify", "tag"])
@torch.no_grad()
def test_smoothing_is_for_learning_and_never_in_a_score(name: str) -> None:
    make, spec = MODELS[name]
    model, plain, smooth = spec.build(), make(), make(smoothing=0.2)
    assert smooth.score(model, "valid") == plain.score(model, "valid")
    batch = plain.batch(1, 0)
    assert float(smooth.loss(model, batch)) != float(plain.loss(model, batch))


def test_packed_texts_have_the_loss_of_each_alone() -> None:
    """Teacher forcing, the shift, no loss across a border, no look at a neighbour: all in one number."""
    model = single(causal=True).build(dtype=torch.float64)
    task = causal(length=64, rows=100)  # rows long enough that some texts are whole
    total = float(task.loss(model, task.batch(1, 0)).detach())
    whole, batch = 0.0, task.batch(1, 0)
    for row in range(len(batch.ids_BT)):
        for number in range(int(batch.document_BT[row].max()) + 1):
            where = batch.document_BT[row] == number
            ids, labels = batch.ids_BT[row, where][None], batch.labels_BT[row, where]
            asked = labels != IGNORE_INDEX
            logits = model(ids)[0][asked]
            whole += float(F.cross_entropy(logits, labels[asked], reduction="sum").detach())
    assert math.isclose(total, whole, rel_tol=1e-12)
    assert batch.targets == sum(len(text) - 1 for text in TEXTS)


def test_only_completions_are_learned() -> None:
    """Prompt [5, 6], completion [7, 8, 2]: three labels, each at the token before it, and no row in parts."""
    texts, flags = [[5, 6, 7, 8, 2]] * 4, [[0, 0, 1, 1, 1]] * 4
    task = CausalLM({"train": texts}, trained={"train": flags}, length=8, rows=4, pad=0)
    batch = task.batch(1, 0)
    assert batch.targets == 12
    assert batch.ids_BT.tolist() == [[5, 6, 7, 8, 2, 0, 0, 0]] * 4
    for ids, labels in zip(batch.ids_BT.flatten().tolist(), batch.labels_BT.flatten().tolist(), strict=True):
        assert labels == {6: 7, 7: 8, 8: 2}.get(ids, IGNORE_INDEX)


def test_a_decoder_is_fed_the_answer_shifted_right() -> None:
    batch = translate().collate([TextPair([7, 8, 2], [9, 10, 11]), TextPair([7, 2], [5])], key=0)
    assert batch.source_BT.tolist() == [[7, 8, 2], [7, 2, 0]]
    assert batch.mask_BT.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.target_BT.tolist() == [[1, 9, 10, 11], [1, 5, 0, 0]]
    assert batch.labels_BT.tolist() == [[9, 10, 11, 2], [5, 2, IGNORE_INDEX, IGNORE_INDEX]]
    assert batch.targets == 6


@pytest.mark.parametrize("name", ["translate", "classify", "tag", "answer"])
def test_padding_changes_no_loss(name: str) -> None:
    """Texts of 2 to 8 tokens, filled up in one batch, have the losses they have alone."""
    make, spec = MODELS[name]
    task, model = make(), spec.build(dtype=torch.float64)
    rows = task.splits["train"][:8]
    assert len({task.size(row) for row in rows}) > 1
    together = task.loss(model, task.collate(rows, 0))
    alone = sum(task.loss(model, task.collate([row], 0)) for row in rows)
    assert_close(together, alone)


def test_masking_is_other_words_each_time_and_the_same_for_the_same_batch() -> None:
    task = masked()
    again = len(task._plans["train"]) + 1  # the first batch of the second epoch
    one, two = task.collate(TEXTS[20:23], key=1), task.collate(TEXTS[20:23], key=again)
    assert not torch.equal(one.labels_BT, two.labels_BT)
    assert torch.equal(one.labels_BT, task.collate(TEXTS[20:23], key=1).labels_BT)


def test_texts_can_be_damaged_anew() -> None:
    def drop_last(text: Sequence[int], draw: object) -> tuple[list[int], list[int]]:
        return [*text[:-1], 2], list(text)

    batch = translate(corrupt=drop_last).collate([TextPair([7, 8, 9, 2], [7, 8, 9])], key=3)
    assert batch.source_BT.tolist() == [[7, 8, 2]] and batch.labels_BT.tolist() == [[7, 8, 9, 2]]


def test_a_perfect_decoder_scores_100() -> None:
    right = {tuple(text): text[::-1] for text in TEXTS}

    def oracle(model: object, source: torch.Tensor, mask: torch.Tensor, limit: int) -> list[list[int]]:
        rows = [row[real == 1][:-1].tolist() for row, real in zip(source, mask, strict=True)]
        return [list(right[tuple(row)]) for row in rows]

    task = translate(decode=oracle, text=lambda ids: " ".join(map(str, ids)))
    scores = task.score(pair().build(), "valid")
    assert scores["exact"] == 100 and math.isclose(scores["chrf"], 100)
    assert task.samples(pair().build())[0].startswith(" ".join(map(str, TEXTS[0])))


def test_the_best_span_lies_in_the_context_and_in_order() -> None:
    spans = [None, None, (0, 3), (4, 7), (8, 11)]
    asked = QAExample([1, 2, 3, 4, 5], None, spans, "the red cat", ["red"], 3, 3)
    scores = torch.zeros(5, 2)
    scores[0, 0], scores[3, 0], scores[3, 1], scores[2, 1] = 9.0, 5.0, 4.0, 8.0  # an end before its beginning
    assert best_span(scores, asked) == "red"
    task = QuestionAnswering({"train": [asked], "valid": [asked]}, pad=0, tokens=60)
    model = single(cn.Span()).build()
    assert task.batch(1, 0).ends_B2.tolist() == [[3, 3]]
    assert {"loss", "exact", "f1"} <= set(task.score(model, "valid"))


@given(
    seed=st.integers(0, 10**6),
    asked=st.integers(0, 6),
    length=st.integers(1, 3 * MAX_ANSWER_TOKENS),
    apart=st.sampled_from([None, MAX_ANSWER_TOKENS - 1, MAX_ANSWER_TOKENS, 2 * MAX_ANSWER_TOKENS]),
)
def test_the_best_span_is_that_of_brute_force(seed: int, asked: int, length: int, apart: int | None) -> None:
    """Every span of the context of one to MAX_ANSWER_TOKENS tokens."""
    spans = [None] * asked + [(i, i + 1) for i in range(length)] + [None]
    context = "".join(chr(ord("A") + i) for i in range(length))  # a character a token, none twice
    example = QAExample([5] * len(spans), None, spans, context, [context[0]], asked, asked)
    scores = torch.randn(len(spans), 2, generator=torch.Generator().manual_seed(seed))
    if apart is not None and apart < length:  # the likeliest ends, perhaps too far from each other
        scores[asked, 0] += 20.0
        scores[asked + apart, 1] += 10.0
    found = {
        (i, j): float(scores[i, 0] + scores[j, 1])
        for i in range(asked, asked + length)
        for j in range(i, min(i + MAX_ANSWER_TOKENS, asked + length))
    }
    first, last = max(found, key=lambda span: found[span])
    assert best_span(scores, example) == context[first - asked : last - asked + 1]


def test_a_model_of_the_wrong_kind_is_refused() -> None:
    for task, model in (
        (translate(), single().build()),
        (causal(), pair().build()),
        (masked(), pair().build()),
    ):
        with pytest.raises(InputError, match="needs a model with"):
            task.loss(model, task.batch(1, 0))


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="nothing to predict"):
        CausalLM({"train": [[5], [6]]}, length=4, rows=1, pad=0)
    with pytest.raises(DataError, match="no usable rows"):
        TextClassification({"train": []}, pad=0, tokens=60)


def test_masking_is_other_words_each_time_or_always_the_same() -> None:
    text = [list(range(5, 25))]
    for masking, same in (("dynamic", False), ("static", True)):
        task = masked(replace(HIDE, masking=masking))
        one, two = task.collate(text, key=1), task.collate([[7, 8, 9], *text], key=2)
        assert torch.equal(one.ids_BT[0], two.ids_BT[1]) is same


def test_two_texts_are_framed_and_asked_as_bert_was() -> None:
    batch = pretrain().collate([SentencePair([7, 8], [9], True), SentencePair([5], [6], False)], key=0)
    whole = torch.where(batch.labels_BT != IGNORE_INDEX, batch.labels_BT, batch.ids_BT)
    assert whole.tolist() == [[1, 7, 8, 2, 9, 2], [1, 5, 2, 6, 2, 0]]
    assert batch.types_BT.tolist() == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0]]
    assert batch.mask_BT.tolist() == [[1] * 6, [1] * 5 + [0]]
    assert batch.follows_B.tolist() == [0, 1]  # theirs: 0 is "it follows"


def test_the_two_losses_are_those_of_the_reference() -> None:
    """transformers' BertForPreTraining adds two means; with one part and equal lengths ours is that sum."""
    transformers = pytest.importorskip("transformers")
    import clearhead as ch

    bundle = ch.build("bert", task="pretrain", vocab_size=VOCAB, hidden_size=24, num_hidden_layers=2,
                      num_attention_heads=4, intermediate_size=40, max_position_embeddings=48)  # fmt: skip
    rows = [SentencePair(list(range(5, 15)), list(range(15, 25)), i % 3 == 0) for i in range(6)]
    task = BertPretraining({"train": rows}, hide=HIDE, pad=0, start=1, end=2, tokens=10**6, seed=1)
    batch = task.batch(1, 0)
    assert batch.targets == 6 * 3 == 6 * task.weight  # 15 % of twenty words
    ours = float(task.loss(bundle.model, batch).detach()) / batch.targets
    with tempfile.TemporaryDirectory() as folder:
        ch.save(bundle, folder)
        theirs = transformers.BertForPreTraining.from_pretrained(folder, local_files_only=True).eval()
    said = theirs(
        input_ids=batch.ids_BT, attention_mask=batch.mask_BT, token_type_ids=batch.types_BT,
        labels=batch.labels_BT, next_sentence_label=batch.follows_B,
    )  # fmt: skip
    assert math.isclose(ours, said.loss.item(), rel_tol=1e-5)


def test_texts_follow_half_of_the_time_and_strangers_come_from_elsewhere() -> None:
    documents = [[[100 * d + s] * 5 for s in range(40)] for d in range(50)]
    pairs = sentence_pairs(documents, length=22, seed=3)
    assert (
        pairs == sentence_pairs(documents, length=22, seed=3) != sentence_pairs(documents, length=22, seed=4)
    )
    assert 0.4 < sum(pair.follows for pair in pairs) / len(pairs) < 0.6
    for first, second, follows in pairs:
        assert len(first) > 0 and len(second) > 0 and len(first) + len(second) <= 22
        assert (first[0] // 100 == second[0] // 100) is follows
        if follows:
            assert second[0] == first[-1] + 1
    with pytest.raises(DataError, match="expected two texts"):
        sentence_pairs([[[1], [2]]], length=8, seed=0)


def test_sentences_end_where_people_end_them() -> None:
    text = "One. Two? 3.5 is three\nand a half!\n\nTitle\n\n你好。再见！"
    assert sentences(text) == ["One.", "Two?", "3.5 is three\nand a half!", "Title", "你好。", "再见！"]
    assert sentences("a line\nand another") == ["a line", "and another"]
