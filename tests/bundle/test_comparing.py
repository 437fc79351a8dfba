"""Comparisons of two bundles: their numbers against transformers and plain formulas, over kinds of models."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch.distributions import Categorical, kl_divergence
from tunings import move

import clearhead as ch
from clearhead.bundle import Bundle, compare_rows
from clearhead.errors import ClearheadError, InputError
from clearhead.lens import Comparison
from clearhead.text import train_tokenizer
from clearhead.tune import (
    IA3,
    Bottleneck,
    Full,
    Lora,
    Prefix,
    Prompt,
    Tuning,
    pair_models,
    switch_off,
)

LINES = [
    "the cat sat on a mat",
    "a dog ran in the park",
    "the old dog sat",
    "今天天气很好，我们去公园",
    "好的",
]
TEXT = "the old cat ran in the park"
SIZES: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
    "llama": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
              "intermediate_size": 48},
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    "albert": {"hidden_size": 32, "embedding_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4,
               "intermediate_size": 48},
    "t5": {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4},
    "bart": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
             "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
}  # fmt: skip


def made(name: str, task: str = "tokens", problem: str | None = None, **config: Any) -> Bundle:
    """A model of random weights, large enough that every part matters, with a tokenizer."""
    frame = "cls-sep" if name in ("bert", "albert") else None
    kind = "wordpiece" if frame else "bpe"
    tokenizer = train_tokenizer(LINES * 4, kind=kind, vocab=90, **({"frame": frame} if frame else {}))
    bundle = ch.build(name, task=task, vocab_size=tokenizer.vocab, **SIZES[name], **config)
    bundle.config |= {} if problem is None else {"problem_type": problem}
    with torch.no_grad():
        for p in bundle.model.parameters():
            if p.ndim > 1:
                p.mul_(6.0)
    bundle.tokenizer = tokenizer
    if name in ("t5", "bart"):
        bundle.generation |= {"decoder_start_token_id": 0, "eos_token_id": 1}
    return bundle


def tuned(base: Bundle, tuning: Tuning, size: float = 0.1) -> Bundle:
    after = ch.tune(base, tuning)
    assert after.tuning is not None
    move(after.model, after.tuning.trained, size)
    return after


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_numbers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Both models as folders that transformers opens: probabilities, loss, KL and attention by its code."""
    after = tuned(made(name), Lora(rank=2))
    c = ch.compare(after, TEXT, effects="none")
    assert after.base is not None
    ch.save(after.base, tmp_path / "base")
    ch.save(after.merged(), tmp_path / "tuned")
    ids = torch.tensor([after.encode(TEXT)])
    outputs = []
    for folder in ("base", "tuned"):
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / folder, attn_implementation="eager"
        )
        with torch.no_grad():
            outputs.append(theirs.eval()(ids, output_attentions=True))
    before, later = (output.logits[0].double() for output in outputs)
    wanted = kl_divergence(Categorical(logits=later), Categorical(logits=before))
    shown = [token.change for token in c.tokens if token.change is not None]
    assert shown == pytest.approx(wanted.tolist(), abs=2e-4)
    assert c.change == pytest.approx(float(wanted.sum()), abs=1e-3) and c.rows == len(wanted)
    for output, side in ((before, 0), (later, 1)):
        loss = torch.nn.functional.cross_entropy(output[:-1], ids[0, 1:])
        assert c.summary["loss per token"][side] == pytest.approx(float(loss), abs=1e-4)
        assert c.summary["perplexity"][side] == pytest.approx(float(loss.exp()), rel=1e-4)
        own = output.softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
        given = [(token.before, token.after)[side] for token in c.tokens[1:-1]]
        assert given == pytest.approx(own.tolist(), abs=1e-5)
    switched = (before.argmax(-1) != later.argmax(-1)).double().mean()
    assert c.switched == pytest.approx(float(switched))
    weights = [torch.stack(output.attentions)[:, 0].double().numpy() for output in outputs]
    moved = 0.5 * np.abs(weights[1] - weights[0]).sum(-1).mean(-1)
    assert c.attention["self"].moved_LH.numpy() == pytest.approx(moved, abs=1e-5)
    link = c.attention["self"].links[0]
    assert (link.layer, link.head) == np.unravel_index(moved.argmax(), moved.shape)
    one, two = (x[link.layer, link.head] for x in weights)
    assert abs(two - one).max() == pytest.approx(abs(link.after - link.before), abs=1e-5)
    assert link.after == pytest.approx(two[link.query_index, link.key_index], abs=1e-5)


FAMILIES = ["gpt2", "llama", "bert", "albert", "t5", "bart"]


@pytest.mark.parametrize("name", FAMILIES)
def test_effects_are_those_of_bundles_without_the_parts(name: str) -> None:
    """Each recomputed by itself: the model without that part of its tuning, run on its own."""
    after = tuned(made(name), Lora(rank=2))
    c = ch.compare(after, TEXT, max_new_tokens=4, effects="heads")
    trace = after.trace(TEXT, max_new_tokens=4)
    inputs, options = trace.input.arguments(after.device)

    def output(bundle: Bundle) -> torch.Tensor:
        with torch.no_grad():
            logits = bundle.model(*inputs, **options)[0].double()
        special = torch.tensor([t.special for t in trace.tokens]) & (not after.spec.generates)
        return logits if len(special) != len(logits) else logits[~special]

    def distance(bundle: Bundle) -> float:
        return float(
            kl_divergence(Categorical(logits=output(after)), Categorical(logits=output(bundle))).sum()
        )

    assert after.base is not None
    total = distance(after.base)
    assert c.change == pytest.approx(total, rel=1e-4) and total > 0
    assert {p.step for p in c.parts} >= {"", "attn", "ff"}
    chosen = [p for p in c.parts if p.head is None] + [p for p in c.parts if p.head is not None][::5]
    for part in chosen:
        found = distance(after.without(tuning=part.address))
        assert part.effect == pytest.approx(found, rel=1e-3, abs=1e-6), part.address
        assert part.share == pytest.approx(found / total, rel=1e-3, abs=1e-6)
        if part.layer is None or not part.step:
            alone = 1 - distance(after.without(tuning="all", keep=part.address)) / total
            assert part.alone == pytest.approx(alone, rel=1e-3, abs=1e-4)
    for kept in c.kept:
        found = 1 - distance(after.without(tuning="all", keep=kept.addresses)) / total
        assert kept.share == pytest.approx(found, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_one_changed_head_is_named(name: str) -> None:
    """Two checkpoints that differ in the queries of one head: its energy and effect, and no other's."""
    before, after = made(name), made(name)
    stacks = after.model.stacks
    tower = "decoder" if name in ("t5", "bart") else next(iter(stacks))
    attention = stacks[tower].blocks[1].attn
    with torch.no_grad():
        attention.q.weight[8:16] *= -1
    target = "a dog ran" if name in ("t5", "bart") else None
    c = ch.compare(before, after, TEXT, target, max_new_tokens=0, effects="heads")
    named = {part.address for part in c.parts if part.head is not None and part.energy}
    layers = range(3) if name == "albert" else (1,)
    assert named == {f"{tower}.blocks.{i}.attn.heads.1" for i in layers}
    effects = {part.address: part.effect for part in c.parts if part.head is not None}
    assert {address for address, effect in effects.items() if effect > 1e-4} <= named
    assert max(effects, key=effects.__getitem__) in named
    if name != "albert":
        assert c.part(f"{tower}.blocks.1.attn.heads.1").share == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    "tuning",
    [Prefix(length=3), Prompt(length=3), Bottleneck(reduction=4), IA3(), Full(), Lora(variant="dora")],
)
@pytest.mark.parametrize("name", ["llama", "bert", "t5"])
def test_every_kind_of_tuning_is_compared(tuning: Tuning, name: str) -> None:
    after = tuned(made(name), tuning)
    c = ch.compare(after, TEXT, max_new_tokens=3)
    assert c.change > 0 and c.parts and all(part.effect is not None for part in c.parts)
    json.dumps(c.to_dict(), allow_nan=False)
    moved = [change.moved_LH for change in c.attention.values()]
    assert all(bool(((x >= 0) & (x <= 1)).all()) for x in moved)
    virtual = [change.virtual_LH for change in c.attention.values() if change.virtual_LH is not None]
    assert bool(virtual) == isinstance(tuning, Prefix | Prompt)
    if isinstance(tuning, Prefix):
        for kind, change in c.attention.items():
            trace = after.trace(TEXT, max_new_tokens=3)
            shares = torch.stack(
                [trace.virtual_attention(kind, i).sum(-1).mean(-1) for i in range(trace.layers(kind))]
            )
            assert torch.allclose(change.virtual_LH, shares, atol=1e-6)


def test_an_untouched_tuning_changes_nothing() -> None:
    after = ch.tune(made("llama"), Lora(rank=2))
    c = ch.compare(after, TEXT)
    assert c.change == 0 and c.switched == 0 and not c.kept
    assert c.texts is not None and c.texts.before == c.texts.after
    assert float(c.attention["self"].moved_LH.max()) == 0
    assert not any(part.energy for part in c.parts) and all(part.effect is None for part in c.parts)


def test_generated_texts_are_greedy_and_of_each_model() -> None:
    after = tuned(made("llama"), Lora(rank=2))
    c = ch.compare(after, TEXT, max_new_tokens=6)
    assert after.base is not None and c.texts is not None and c.texts.prompt == TEXT
    greedy = {"max_new_tokens": 6, "do_sample": False}
    assert (c.texts.before, c.texts.after) == tuple(b.generate(TEXT, **greedy) for b in (after.base, after))
    assert ch.compare(after, TEXT, max_new_tokens=0).texts is None
    pair = tuned(made("t5"), Lora(rank=2))
    c = ch.compare(pair, TEXT, max_new_tokens=5)
    assert c.texts is not None and c.texts.prompt == "" and [t.label for t in c.source]
    given = ch.compare(pair, TEXT, "a dog", max_new_tokens=0)
    assert "".join(t.text for t in given.tokens if not t.special).split() == ["a", "dog"]
    assert set(given.attention) == {"self", "decoder", "cross"}


def test_labels_tags_spans_scores_and_vectors() -> None:
    names = {0: "good", 1: "bad", 2: "neither"}
    c = ch.compare(tuned(made("bert", "labels", id2label=names), Lora()), TEXT)
    assert c.kind == "labels" and {label.name for label in c.labels} == set(names.values())
    assert sum(label.after for label in c.labels) == pytest.approx(1) and c.switched is None
    one, two = (Categorical(torch.tensor([getattr(x, n) for x in c.labels])) for n in ("before", "after"))
    assert c.change == pytest.approx(float(kl_divergence(two, one)), abs=1e-5)
    both = ch.compare(
        tuned(made("bert", "labels", id2label=names, problem="multi_label_classification"), Lora()), TEXT
    )
    assert both.kind == "decisions"
    wanted = 0.0
    for label in both.labels:
        for p, q in ((label.after, label.before), (1 - label.after, 1 - label.before)):
            wanted += p * np.log(p / q)
    assert both.change == pytest.approx(wanted, abs=1e-5)
    score = ch.compare(tuned(made("bert", "labels", id2label={0: "x"}, problem="regression"), Lora()), TEXT)
    assert score.kind == "score"
    assert score.change == pytest.approx((score.labels[0].after - score.labels[0].before) ** 2, rel=1e-5)
    tags = ch.compare(tuned(made("bert", "tags", id2label=names), Lora()), TEXT)
    assert tags.kind == "tags" and tags.rows == sum(not token.special for token in tags.tokens)
    assert {guess for token in tags.predicted for guess, _ in token.top_after} <= set(names.values())
    span = ch.compare(tuned(made("bert", "span"), Lora()), TEXT, "the cat sat")
    assert span.kind == "span" and span.rows == 2 and span.change > 0
    assert span.texts is not None and span.texts.after in "the cat sat"
    after = tuned(made("bert", "hidden"), Lora())
    vectors = ch.compare(after, TEXT, "the cat sat")
    assert vectors.kind == "states" and after.base is not None
    one, two = (b.similarity(TEXT, "the cat sat").item() for b in (after.base, after))
    assert vectors.summary["similarity of the two texts"] == pytest.approx((one, two), abs=1e-6)
    cosine = torch.nn.functional.cosine_similarity(after.base.embed(TEXT), after.embed(TEXT), dim=0)
    assert vectors.cosine == pytest.approx(float(cosine), abs=1e-6)
    states = [b.trace(TEXT).hidden(-1) for b in (after.base, after)]
    moved = (states[1] - states[0]).norm(dim=-1) / states[0].norm(dim=-1)
    assert [t.change for t in vectors.tokens] == pytest.approx(moved.tolist(), rel=1e-4)


def test_masked_words_count_where_there_are_masks() -> None:
    after = tuned(made("bert"), Lora())
    assert after.tokenizer is not None and after.tokenizer.mask is not None
    c = ch.compare(after, f"the old {after.tokenizer.mask.text} ran")
    assert c.rows == 1 and [t.label for t in c.predicted] == [after.tokenizer.mask.text]
    every = ch.compare(after, TEXT)
    assert every.rows == sum(not token.special for token in every.tokens) > 1


def test_a_new_head_is_read_by_both(tmp_path: Path) -> None:
    """The base of a classifier has no head: before is its tower under the head that was trained."""
    ch.save(made("bert", "hidden"), tmp_path / "base")
    base = ch.load(tmp_path / "base", head="labels", labels=["good", "bad"])
    after = tuned(base, Lora(rank=2), size=0.5)
    c = ch.compare(after, TEXT)
    assert any("no head of its own" in note for note in c.notes)
    assert "head" not in {part.address for part in c.parts}
    ch.save(after, tmp_path / "tuned")
    opened = ch.load(tmp_path / "tuned")
    again = ch.compare(opened, TEXT)
    assert [x.before for x in again.labels] == pytest.approx([x.before for x in c.labels], abs=1e-6)
    # The base with the trained head, and nothing else of the tuning.
    bare = after.without(tuning=[f"tower.blocks.{i}" for i in range(2)])
    assert sorted(g.probability for g in bare.predict(TEXT).guesses) == pytest.approx(
        sorted(x.before for x in c.labels), abs=1e-5
    )


def test_two_adapters_a_swapped_attention_and_a_quantized_model() -> None:
    base = made("llama")
    one, two = tuned(base, Lora(rank=2)), tuned(base, Lora(rank=4, targets="*.ff"), 0.2)
    c = ch.compare(one, two, TEXT)
    assert c.change > 0 and {part.step for part in c.parts} == {"", "attn", "ff"}
    assert two.without().tuning is two.tuning
    swapped = ch.build(base.spec.edit(ch.nn.Attention, kernel=ch.nn.Linear()))
    swapped.model.load_state_dict(base.model.state_dict(), strict=False)
    swapped.tokenizer = base.tokenizer
    c = ch.compare(base, swapped, TEXT)
    assert {part.address for part in c.parts if part.step} == {f"tower.blocks.{i}.attn" for i in range(2)}
    assert c.part("tower.blocks.0.attn").energy is None and c.part("tower.blocks.0.attn").effect > 0
    packed = made("llama").prepare("int8")
    c = ch.compare(base, packed, TEXT)
    assert 0 < c.mean_change < 0.1
    assert 0 < c.part("tower.blocks.0.attn.heads.3").energy < 0.05


def test_what_cannot_be_compared_is_refused_in_one_line() -> None:
    base, bert = made("llama"), made("bert")
    cases: list[tuple[str, Any]] = [
        ("not tuned, so there is none before it", lambda: ch.compare(base, TEXT)),
        ("different tokenizers", lambda: ch.compare(base, bert, TEXT)),
        ("give a text", lambda: ch.compare(base, tuned(base, Lora()))),
        ("the text is empty", lambda: ch.compare(base, tuned(base, Lora()), "")),
        ("compare takes bundles", lambda: ch.compare("a", base, TEXT)),
        ("'head'|'heads'", lambda: ch.compare(tuned(base, Lora()), TEXT, effects="head")),
        ("reads at most", lambda: ch.compare(tuned(made("gpt2", n_positions=9), Lora()), TEXT * 9)),
        ("no row with a text", lambda: compare_rows(tuned(base, Lora()), ["", " "])),
    ]
    labels = [made("bert", "labels", id2label=dict(enumerate(names))) for names in (("a", "b"), ("a", "c"))]
    cases.append(("compare models of one task", lambda: ch.compare(*labels, TEXT)))
    other = made("bert")
    other.tokenizer = base.tokenizer
    cases.append(("different inputs: one generates text", lambda: ch.compare(base, other, TEXT)))
    for words, call in cases:
        with pytest.raises(ClearheadError, match=words) as error:
            call()
        assert "\n" not in str(error.value)


def test_models_of_other_shapes_are_compared_by_their_predictions() -> None:
    base, deeper = made("llama"), ch.build("llama", vocab_size=made("llama").tokenizer.vocab,
                                           **{**SIZES["llama"], "num_hidden_layers": 3})  # fmt: skip
    deeper.tokenizer = base.tokenizer
    c = ch.compare(base, deeper, TEXT)
    assert c.change > 0 and c.parts == () and not c.attention
    assert any("2 layers of width 32 and 3 layers" in note for note in c.notes)


def test_layers_come_first_where_all_heads_would_take_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    after = tuned(made("llama"), Lora(rank=2))
    monkeypatch.setattr("clearhead.bundle.part_effects.BUDGET", 1.8e9)
    seen: list[tuple[int, int]] = []
    c = ch.compare(after, TEXT, progress=lambda done, of: seen.append((done, of)))
    known = {part.layer for part in c.parts if part.head is not None and part.effect is not None}
    best = max((part for part in c.parts if not part.step), key=lambda part: part.effect)
    assert known == {best.layer} and any(f"matter most: {best.address};" in note for note in c.notes)
    assert all(part.effect is not None for part in c.parts if not part.step)
    assert seen[-1][0] == seen[-1][1] and [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert all(p.effect is None for p in ch.compare(after, TEXT, effects="layers").parts if p.step)
    assert all(p.effect is None and p.energy for p in ch.compare(after, TEXT, effects="none").parts)
    every = ch.compare(after, TEXT, effects="heads")
    assert all(part.effect is not None for part in every.parts)


WORDS = {
    "head:1.2": ["tower.blocks.1.attn.heads.2"],
    "layer:1": ["tower.blocks.1"],
    "mlp:0": ["tower.blocks.0.ff"],
    "attn": ["tower.blocks.0.attn", "tower.blocks.1.attn"],
    "*.ff": ["tower.blocks.0.ff", "tower.blocks.1.ff"],
    "tower.blocks.{0,1}.attn.heads.3": ["tower.blocks.0.attn.heads.3", "tower.blocks.1.attn.heads.3"],
}


@pytest.mark.parametrize("word", WORDS)
def test_parts_are_named_by_words_and_by_patterns(word: str) -> None:
    after = tuned(made("llama"), Lora(rank=2))
    found, wanted = after.without(tuning=word), after.without(tuning=WORDS[word])
    assert torch.equal(found(torch.tensor([[3, 4, 5]])), wanted(torch.tensor([[3, 4, 5]])))
    assert not torch.equal(found(torch.tensor([[3, 4, 5]])), after(torch.tensor([[3, 4, 5]])))


def test_a_bundle_without_parts_of_its_tuning_is_a_bundle() -> None:
    after = tuned(made("llama"), Lora(rank=2))
    base, ids = after.base, torch.tensor([[3, 4, 5]])
    assert base is not None and torch.equal(after.without(tuning="all")(ids), base(ids))
    off = after.without("head:1.0", tuning="layer:0")
    assert isinstance(off.generate(TEXT, max_new_tokens=5), str) and off.trace(TEXT).heads() == 4
    kept = after.without(tuning="all", keep="layer:1")
    assert torch.equal(kept(ids), after.without(tuning="layer:0")(ids))
    pair = tuned(made("t5"), Lora(rank=2))
    cross = pair.without(tuning="cross.head:1.2")
    assert isinstance(cross.generate(TEXT, max_new_tokens=4), str)
    with pytest.raises(InputError, match="encoder and decoder"):
        pair.without(tuning="layer:0")
    for words, message in (
        ("head:0.9", "4 heads"),
        ("tower.embed", "do not differ"),
        ("hed:0.1", "do not differ"),
    ):
        with pytest.raises(InputError, match=message):
            after.without(tuning=words)
    with pytest.raises(InputError, match="is not tuned"):
        made("llama").without(tuning="layer:0")
    with pytest.raises(InputError, match="keep is for"):
        after.without(keep="layer:0")


def test_without_whole_layers_the_adapter_is_smaller(tmp_path: Path) -> None:
    """LoRA and bottlenecks: a tuned bundle again, with the outputs of the parts switched off one by one."""
    ids = torch.tensor([[3, 4, 5]])
    for tuning in (Lora(rank=2, bias="none"), Lora(rank=2, variant="dora"), Bottleneck(reduction=4)):
        after = tuned(made("llama"), tuning)
        smaller = after.without(tuning=("layer:0", "mlp:1"))
        assert smaller.tuning is not None and smaller.base is after.base
        assert all(name.startswith("tower.blocks.1.attn") for name in smaller.tuning.layers)
        assert smaller.tuning.trainable < after.tuning.trainable / 2
        paired = pair_models(after.base.model, after.model)
        off = switch_off(paired, paired.find(["tower.blocks.0", "tower.blocks.1.ff"])).model
        assert torch.equal(smaller(ids), off(ids)) and not torch.equal(smaller(ids), after(ids))
        ch.save(smaller, tmp_path / "smaller")
        assert torch.equal(ch.load(after.base, adapter=tmp_path / "smaller")(ids), smaller(ids))
        one_part = "head:0.1" if isinstance(tuning, Lora) else ("layer:0", "layer:1")
        assert after.without(tuning=one_part).tuning is None
    heads = after.without(tuning=[f"layer:{i}" for i in range(2)])
    assert heads.tuning is None and torch.equal(heads(ids), after.base(ids))
    shared = tuned(made("albert"), Lora(rank=2))
    assert shared.without(tuning="layer:0").tuning is None
    with pytest.raises(ClearheadError, match="is one to look at"):
        ch.save(tuned(made("llama"), Lora(rank=2)).without(tuning="head:0.1"), tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_rows_that_changed_most_come_first() -> None:
    after = tuned(made("llama"), Lora(rank=2))
    texts = [*LINES[:3], "", LINES[0] * 40]
    found = compare_rows(after, texts)
    assert [row.change for row in found.rows] == sorted((row.change for row in found.rows), reverse=True)
    assert {row.row for row in found.rows} == {1, 2, 3, 5} and found.without_text == 1
    alone = {row.row: row for row in found.rows}
    one = ch.compare(after, LINES[1], effects="none")
    assert alone[2].change == pytest.approx(one.mean_change, rel=1e-5)
    assert (alone[2].before, alone[2].after) == pytest.approx(one.summary["loss per token"], rel=1e-5)
    short = tuned(made("gpt2", n_positions=12), Lora(rank=2))
    assert "1 texts were longer" in compare_rows(short, [LINES[0], LINES[0] * 5]).notes[-1]
    labels = tuned(made("bert", "labels", id2label={0: "good", 1: "bad"}), Lora(rank=8), 0.5)
    rows = compare_rows(labels, LINES)
    assert {row.best_before for row in rows.rows} <= {"good", "bad"}
    assert [row.is_switched for row in rows.rows] == sorted((r.is_switched for r in rows.rows), reverse=True)
    for row in rows.rows:
        assert row.best_after == labels.predict(row.text).guesses[0].text
    pair = compare_rows(tuned(made("t5"), Lora(rank=2)), ["the cat"], ["a dog"])
    assert pair.rows[0].before is not None


def test_a_comparison_is_plain_data() -> None:
    c = ch.compare(tuned(made("t5"), Prefix(length=2)), TEXT, max_new_tokens=3)
    facts = json.loads(json.dumps(c.to_dict(), allow_nan=False, ensure_ascii=False))
    assert set(facts["attention"]) == {"self", "decoder", "cross"} and facts["unit"] == "nats"
    assert len(facts["tokens"]) == len(c.tokens) and len(facts["parts"]) == len(c.parts)
    assert isinstance(c, Comparison) and c.head_values("cross", "share")[0]


def test_a_text_that_fills_the_model_is_compared_with_as_many_new_tokens_as_fit() -> None:
    words = train_tokenizer(["a b c d e"] * 4, kind="wordpiece", vocab=40, frame="none")
    base = ch.build("gpt2", vocab_size=words.vocab, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    base.tokenizer = words
    tuned = ch.tune(base, Lora(rank=2))
    for length in (6, 8):
        found = ch.compare(tuned, " ".join("abcdeabc"[:length]), effects="none")
        assert len(found.tokens) == length + 1 and found.texts is not None  # with the next token
