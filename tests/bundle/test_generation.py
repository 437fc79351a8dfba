"""Bundles that speak: texts in, texts out; streams, answers, ids; and one line for what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trained import trained, write

import clearhead as ch
from clearhead.bundle import Bundle
from clearhead.bundle.generation import text_generator
from clearhead.errors import InputError
from clearhead.generate import Answer, GenerationSettings
from clearhead.text import Tokenizer

TEXTS = ["The quick brown fox", "今天", "Attention is all you need; the rest", "🏳️‍🌈 A"]


def spoken(folder: Path, family: str = "gpt2", kind: str = "bytes", **config: Any) -> Bundle:
    """A tiny random model with a real tokenizer: it says everything, half characters included."""
    vocab = trained(kind).get_vocab_size()
    sizes: dict[str, Any] = {
        "gpt2": {"n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 96},
        "bart": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2,
                 "decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
                 "max_position_embeddings": 64, "decoder_start_token_id": 1, "forced_eos_token_id": None},
    }[family]  # fmt: skip
    bundle = ch.build(family, vocab_size=vocab, eos_token_id=1, pad_token_id=2, **sizes | config)
    with torch.no_grad():
        for p in bundle.model.parameters():  # opinions of its own
            p += torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.3
    bundle.tokenizer = Tokenizer.read(write(folder / kind, kind))
    return bundle


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return spoken(tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return spoken(tmp_path_factory.mktemp("bart"), "bart", "unigram")


@pytest.fixture(params=["gpt", "bart"])
def bundle(request: pytest.FixtureRequest) -> Bundle:
    found: Bundle = request.getfixturevalue(request.param)
    return found


def said(bundle: Bundle, text: str, **settings: Any) -> Answer:
    answer = bundle.answer(text, **settings)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    "settings",
    [{}, {"num_beams": 3}, {"do_sample": True, "seed": 2}, {"penalty_alpha": 0.6, "top_k": 3}],
    ids=str,
)
def test_a_list_gets_the_answers_its_texts_get_alone(bundle: Bundle, settings: dict[str, Any]) -> None:
    """In the order given, whatever the batches were."""
    settings = settings | {"max_new_tokens": 12}
    alone = [bundle.generate(text, **settings) for text in TEXTS]
    assert all(isinstance(text, str) for text in alone)
    for batch in (1, 2, 16):
        assert bundle.generate(TEXTS, batch=batch, **settings) == alone


def test_several_answers_follow_each_other(bundle: Bundle) -> None:
    settings: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 6}
    one, two = bundle.generate(TEXTS[0], **settings), bundle.generate(TEXTS[1], **settings)
    assert len(one) == len(two) == 2
    assert bundle.generate(TEXTS[:2], **settings) == [*one, *two]
    best = said(bundle, TEXTS[0], **settings)
    assert [best.text, best.others[0].text] == one and best.score >= best.others[0].score


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_adds_up_to_the_text(bundle: Bundle, seed: int) -> None:
    settings: dict[str, Any] = {"do_sample": True, "temperature": 1.3, "seed": seed, "max_new_tokens": 60}
    pieces = list(bundle.stream(TEXTS[0], **settings))
    assert "".join(pieces) == bundle.generate(TEXTS[0], **settings)
    assert all(pieces) and all(piece.encode("utf-8") for piece in pieces)
    assert list(bundle.stream(TEXTS[0], num_beams=2, max_new_tokens=5)) == [
        bundle.generate(TEXTS[0], num_beams=2, max_new_tokens=5)
    ]


@pytest.mark.parametrize("how", [{}, {"num_beams": 3}, {"do_sample": True, "seed": 4}], ids=str)
def test_a_stop_string_ends_the_text_before_it(bundle: Bundle, how: dict[str, Any]) -> None:
    settings = how | {"max_new_tokens": 40, "suppress_tokens": [1]}
    free = said(bundle, TEXTS[0], **settings)
    whole = "".join(token.text for token in free.tokens)
    at = next(i for i in range(4, len(whole)) if "\ufffd" not in whole[i : i + 3])
    stop = whole[at : at + 3]
    cut = said(bundle, TEXTS[0], stop=[stop, "never said by anybody"], **settings)
    assert cut.reason == "stop" and len(cut.tokens) < len(free.tokens)
    assert stop not in cut.text
    if "num_beams" not in how:  # beams may prefer another text that ends sooner
        assert cut.text == whole[: whole.find(stop)]
        assert "".join(bundle.stream(TEXTS[0], stop=stop, **settings)) == cut.text


def test_an_answer_knows_everything(gpt: Bundle) -> None:
    answer = said(gpt, TEXTS[0], max_new_tokens=8, alternatives=4)
    assert "".join(token.text for token in answer.tokens) == answer.text
    assert answer.logprob == pytest.approx(answer.score)
    for token in answer.tokens:
        assert len(token.alternatives) == 4
        assert (token.alternatives[0].id, token.alternatives[0].logprob) == (
            token.id,
            pytest.approx(token.logprob),
        )
        chances = [choice.logprob for choice in token.alternatives]
        assert chances == sorted(chances, reverse=True)
    beams = said(gpt, TEXTS[0], max_new_tokens=5, num_beams=2, num_return_sequences=2, record=True)
    assert {node.fate for node in beams.tree} == {"kept", "finished", "pruned"}
    told = json.loads(json.dumps(beams.to_dict()))
    assert told["text"] == beams.text and len(told["others"]) == 1 and len(told["tree"]) == len(beams.tree)


def test_an_answer_can_be_made_to_begin_otherwise(bundle: Bundle) -> None:
    """What the studio does when somebody clicks on an alternative: go on after another token."""
    first = said(bundle, TEXTS[0], max_new_tokens=8, alternatives=3)
    other = first.tokens[2].alternatives[1].id
    begin = [*first.ids[:2], other]
    second = said(bundle, TEXTS[0], max_new_tokens=8, begin=begin, alternatives=3)
    assert second.ids[:3] == begin and len(second.ids) >= 3
    assert second.tokens[2].logprob == pytest.approx(first.tokens[2].alternatives[1].logprob, abs=1e-5)
    assert said(bundle, TEXTS[0], max_new_tokens=8, begin=first.ids[:3]).ids == first.ids


def test_ids_in_and_out(gpt: Bundle) -> None:
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 2, 2]])  # 2 is padding
    out = gpt.generate_ids(ids, max_new_tokens=5)
    assert torch.equal(out[:, :4], ids) and out.shape == (2, 9)
    assert torch.equal(out, gpt.generate_ids(ids, ids != 2, max_new_tokens=5))
    assert torch.equal(out[1, 4:], gpt.generate_ids(ids[1:, :2], max_new_tokens=5)[0, 2:])
    assert not out.is_inference(), "what comes out may go into training"
    drawn = gpt.generate_ids(ids, do_sample=True, seed=[4, 5], max_new_tokens=5)
    assert torch.equal(
        drawn[1, 4:], gpt.generate_ids(ids[1:], do_sample=True, seed=5, max_new_tokens=5)[0, 4:]
    )


def test_a_draft_says_the_same(gpt: Bundle, tmp_path: Path) -> None:
    small = spoken(tmp_path, n_embd=8, n_layer=1)
    settings: dict[str, Any] = {"max_new_tokens": 20, "num_assistant_tokens": 3}
    for more in ({}, {"do_sample": True, "seed": 9, "top_p": 0.8}):
        assert gpt.generate(TEXTS, assistant=small, **settings, **more) == gpt.generate(
            TEXTS, **settings, **more
        )


def test_the_checkpoint_s_own_settings_are_kept_and_used(gpt: Bundle, tmp_path: Path) -> None:
    stored = Bundle(
        **vars(gpt) | {"generation": {"num_beams": 3, "max_new_tokens": 6, "no_repeat_ngram_size": 2}}
    )
    ch.save(stored, tmp_path / "model")
    again = ch.load(tmp_path / "model")
    told: dict[str, Any] = {"num_beams": 3, "max_new_tokens": 6, "no_repeat_ngram_size": 2}
    assert again.generate(TEXTS) == gpt.generate(TEXTS, **told)
    assert again.generate(TEXTS, num_beams=1) == gpt.generate(TEXTS, **told | {"num_beams": 1})


def test_older_files_say_it_in_config_json(bart: Bundle) -> None:
    config = bart.config | {"num_beams": 2, "max_length": 9, "forced_bos_token_id": 7}
    older = Bundle(**vars(bart) | {"config": config})
    told: dict[str, Any] = {"num_beams": 2, "max_length": 9, "forced_bos_token_id": 7}
    assert older.generate(TEXTS) == bart.generate(TEXTS, **told) != bart.generate(TEXTS, max_new_tokens=8)
    assert said(older, TEXTS[0]).ids[0] == 7
    dumped = Bundle(**vars(bart) | {"config": bart.config | {"max_length": 20}})  # a default nobody chose
    assert len(said(dumped, TEXTS[0], suppress_tokens=[1]).ids) == 64


def test_a_text_that_does_not_fit_is_refused_with_both_numbers(gpt: Bundle, bart: Bundle) -> None:
    assert gpt.tokenizer is not None
    long = "dog " * 120
    count = len(gpt.tokenizer.encode(long).ids)
    with pytest.raises(InputError, match=f"the prompt has {count} tokens, the model 96 positions"):
        gpt.generate(long)
    with pytest.raises(
        InputError, match=r"95 new ones need \d+ positions, the model has 96; ask for at most"
    ):
        gpt.generate(TEXTS[0], max_new_tokens=95)
    whole = said(gpt, TEXTS[0], suppress_tokens=[1])
    assert whole.reason == "length" and len(gpt.tokenizer.encode(TEXTS[0]).ids) + len(whole.ids) == 97
    with pytest.raises(InputError, match=r"the text has \d+ tokens, the encoder 64 positions"):
        bart.generate(long)


def test_a_text_longer_than_those_of_the_training_is_noted(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vocab = trained("bytes").get_vocab_size()
    rotary = ch.build("llama", vocab_size=vocab, max_position_embeddings=8, num_key_value_heads=2, **sizes)
    rotary.tokenizer = Tokenizer.read(write(tmp_path / "t", "bytes"))
    assert said(rotary, "A", max_new_tokens=2).notes == ()
    assert "trained on texts of up to 8" in said(rotary, "A fox " * 9, max_new_tokens=2).notes[0]


@pytest.mark.parametrize(
    ("family", "task", "message"),
    [
        ("bert", "tokens", "BERT cannot generate text; it fills in masked words: clearhead predict"),
        ("bert", "labels", "labels texts: clearhead predict"),
        ("gpt2", "labels", "labels texts: clearhead predict"),
        ("bert", "hidden", "clearhead embed"),
    ],
)
def test_a_model_that_does_not_speak_says_what_it_does(family: str, task: Any, message: str) -> None:
    gpt2 = {"n_embd": 8, "n_layer": 1, "n_head": 1}
    bert = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    sizes = gpt2 if family == "gpt2" else bert
    silent = ch.build(family, task=task, vocab_size=20, **sizes)
    with pytest.raises(InputError, match=message):
        silent.generate_ids(torch.tensor([[1, 2]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b.generate(""), "the prompt is empty"),
        (lambda b: b.generate(["a", ""]), "the prompt is empty"),
        (lambda b: b.generate("a", batch=0), "batch is 0"),
        (lambda b: b.answer("a", alternatives=2, num_beams=2), "beam search has no alternatives"),
        (lambda b: b.generate("a", temprature=1), "did you mean 'temperature'"),
        (lambda b: b.generate("a", begin=[10**6]), "begin is 1000000, but the vocabulary has"),
        (lambda b: b.generate(["a", "b"], do_sample=True, seed=[1]), "1 seeds for 2 requests"),
        (lambda b: b.generate([{"role": "user", "content": "a"}]), "no chat template"),
        (lambda b: b.generate_ids(torch.rand(1, 3)), "ids must be whole numbers"),
        (lambda b: b.generate_ids(torch.tensor([1, 2])), "ids must be whole numbers of shape"),
        (lambda b: b.generate_ids(torch.tensor([[2, 2]])), "no real token"),
        (lambda b: b.generate_ids(torch.tensor([[1], [3]]), assistant=b), "one request at a time"),
    ],
)
def test_what_cannot_be_is_one_line(gpt: Bundle, call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call(gpt)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "how",
    [{}, {"num_beams": 2, "record": True}, {"do_sample": True, "seed": [3, 4], "alternatives": 2}],
    ids=str,
)
def test_settings_are_read_once_and_the_strategy_is_built_once(
    gpt: Bundle, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    read, strategy = GenerationSettings.read, GenerationSettings.strategy
    monkeypatch.setattr(GenerationSettings, "read", lambda *a: (calls.append("read"), read(*a))[1])
    monkeypatch.setattr(GenerationSettings, "strategy", lambda s: (calls.append("strategy"), strategy(s))[1])
    gpt.answer(TEXTS[:2], batch=1, max_new_tokens=3, **how)  # two batches
    assert sorted(calls) == ["read", "strategy"]
    calls.clear()
    assert "".join(gpt.stream(TEXTS[0], max_new_tokens=3))
    assert sorted(calls) == ["read", "strategy"]


def test_notes_are_of_one_call(gpt: Bundle) -> None:
    """A generator may be used again; what was noted about earlier prompts is not repeated."""
    generator = text_generator(Bundle(**vars(gpt) | {"generation": {"unheard_of": 3}}), {"max_new_tokens": 2})
    for _ in range(2):
        assert len(generator.answers(TEXTS)[0].notes) == 1


def test_ids_work_without_a_tokenizer_and_text_says_what_is_missing(gpt: Bundle) -> None:
    bare = Bundle(**vars(gpt) | {"tokenizer": None})
    assert bare.generate_ids(torch.tensor([[5, 6]]), max_new_tokens=3).shape == (1, 5)
    with pytest.raises(InputError, match="text needs a tokenizer"):
        bare.generate("a")
