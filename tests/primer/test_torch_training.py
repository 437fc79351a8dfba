"""Training and decoding with the torch primer: steps, schedule, smoothing, augmentation, greedy decoding."""

import pytest
import torch
import torch.nn.functional as F
from textbook import SIZES, SRC, TGT, random, small
from tolerance import assert_close
from torch import nn

from clearhead.errors import InputError, SpecError
from clearhead.primer import torch as primer


def test_a_step_does_not_count_padding_and_training_learns() -> None:
    model = primer.Transformer(20, 30, **SIZES, dropout=0.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    steps: list[int] = []
    scheduler = type("Counting", (), {"step": lambda self: steps.append(1)})()
    with torch.no_grad():
        src_mask, tgt_mask = primer.create_masks(SRC, TGT[:, :-1])
        logits, wanted = model(SRC, TGT[:, :-1], src_mask, tgt_mask), TGT[:, 1:]
        expected = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0)
    plain = nn.CrossEntropyLoss()  # not told of padding
    loss = primer.train_step(model, SRC, TGT, plain, optimizer, scheduler=scheduler)
    assert loss == pytest.approx(float(expected), abs=1e-5) and steps == [1] and model.training
    for _ in range(120):
        loss = primer.train_step(model, SRC, TGT, plain, optimizer)
    assert loss < 0.05
    with pytest.raises(InputError, match="every target is padding"):
        primer.train_step(model, SRC, torch.zeros_like(TGT), plain, optimizer)


def test_the_rate_is_noams() -> None:
    for base in (1e-3, 1.0):
        optimizer = torch.optim.Adam([nn.Parameter(torch.zeros(1))], lr=base)
        scheduler = primer.get_lr_scheduler(optimizer, 512, 4000)
        rates = []
        for _ in range(4002):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        assert rates[0] == pytest.approx(1.7469e-7, rel=1e-4) and rates[1] == pytest.approx(2 * rates[0])
        assert max(rates) == rates[3999] == pytest.approx(6.9877e-4, rel=1e-4)
    with pytest.raises(InputError, match="lr is 0"):
        primer.get_lr_scheduler(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.0), 8)


def test_label_smoothing_is_a_divergence_over_real_words() -> None:
    size, target = 6, torch.tensor([2, 0, 5])
    loss = primer.LabelSmoothingLoss(size, padding_idx=0, smoothing=0.1)
    logits = random(3, size)
    truth = torch.full((3, size), 0.1 / (size - 2), dtype=torch.float64)
    truth[:, 0] = 0
    truth[range(3), target] = 0.9
    expected = F.kl_div(logits.log_softmax(-1)[[0, 2]], truth[[0, 2]], reduction="sum")
    assert_close(loss(logits, target), expected / 2)
    assert_close(loss(logits + 100, target), expected / 2)  # a shift of logits means nothing
    assert_close(loss(logits.log_softmax(-1), target), expected / 2)
    assert_close(primer.LabelSmoothingLoss(size, reduction="sum")(logits, target), expected)
    perfect = truth.log().clamp(min=-50)
    assert float(loss(perfect, target)) == pytest.approx(0, abs=1e-9)
    assert float(loss(logits, torch.zeros(3, dtype=torch.long))) == 0.0
    with pytest.raises(SpecError, match="3 or more"):
        primer.LabelSmoothingLoss(2)
    with pytest.raises(InputError, match=r"given \(3, 6\) and \(2,\)"):
        loss(logits, target[:2])


def test_augmentation_is_a_function_of_its_seed_and_empties_nothing() -> None:
    src, tgt = ["I am very happy in my big house", "我非常喜欢漂亮的房子"], ["甲", "乙"]
    one, two = (primer.augment_data(src, tgt, seed=seed, delete=0.3, synonyms=0.9) for seed in (0, 0))
    assert one == two and one[1] == tgt and one[0] != src
    assert primer.augment_data(src, tgt, seed=5, delete=0.3, synonyms=0.9) != one
    assert primer.augment_data("word", "字", delete=1.0, synonyms=0, letters=0) == ("word", "字")
    replaced, _ = primer.augment_data("非常喜欢", "x", delete=0, synonyms=1.0, swap=0, letters=0)
    assert replaced[:2] in ("十分", "很喜") and "喜欢" not in replaced


def test_segmented_chinese_stays_words() -> None:
    words = ["我", "非常", "喜歡", "萬聖節"]
    synonyms = {"十分", "很", "喜愛"}
    seen = set()
    for seed in range(40):
        changed, _ = primer.augment_data(
            " ".join(words), "x", seed=seed, delete=0.3, swap=0.3, letters=0, synonyms=0.3
        )
        assert changed.split() and set(changed.split()) <= {*words, *synonyms}, changed
        seen |= set(changed.split())
    assert seen == {*words, *synonyms}


def test_synonyms_keep_to_their_script() -> None:
    pairs = [
        ("我 很 高興", "開心快樂"),
        ("我很高兴", "开心快乐"),
        ("我 經常 開始", "常常著手"),
        ("美麗的房子", "漂亮屋子"),
    ]
    for text, known in pairs:
        changed, _ = primer.augment_data(text, "x", delete=0, synonyms=1.0, swap=0, letters=0)
        assert changed != text and set(changed) <= {*text, *known}, changed


def test_greedy_decoding_is_argmax_step_by_step() -> None:
    model = primer.Transformer(20, 9, **SIZES, seed=4).train()
    src_mask = primer.create_padding_mask(SRC)
    said = primer.greedy_decode(model, SRC, src_mask, 12, 1, 2)
    assert model.training and not said.requires_grad
    model.eval()
    for row in range(2):
        ids = [1]
        while len(ids) < 12 and ids[-1] != 2:
            real = SRC[row : row + 1][SRC[row : row + 1] != 0][None]
            ids.append(int(model(real, torch.tensor([ids]))[0, -1].argmax()))
        assert said[row, : len(ids)].tolist() == ids and bool((said[row, len(ids) :] == 0).all())
    assert torch.equal(primer.greedy_decode(model, SRC, max_len=12), said)
    with pytest.raises(InputError, match="max_len is 1"):
        primer.greedy_decode(model, SRC, src_mask, 1, 1, 2)


def test_each_sentence_ends_by_itself() -> None:
    model = primer.Transformer(20, 9, **SIZES, dropout=0.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    src, tgt = torch.tensor([[5, 5, 5], [6, 6, 6]]), torch.tensor([[1, 4, 2, 0, 0], [1, 4, 5, 6, 2]])
    for _ in range(60):
        primer.train_step(model, src, tgt, nn.CrossEntropyLoss(), optimizer)
    assert primer.greedy_decode(model, src, None, 10, 1, 2).tolist() == tgt.tolist()


def test_gradients_are_measured_as_clipping_measures_them() -> None:
    model = small()
    with pytest.raises(InputError, match="no parameter has a gradient"):
        primer.analyze_gradients(model)
    model(SRC, TGT).square().sum().backward()
    said: list[str] = []
    norms = primer.analyze_gradients(model, say=said.append)
    total = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert norms["total"] == pytest.approx(float(total), rel=1e-9)
    assert len(said) == len(norms) and said[-1].startswith("Total gradient norm")
