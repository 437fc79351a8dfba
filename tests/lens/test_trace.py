"""Traces of texts: labels, what was said step by step, the tree of a search, and its speed."""

from pathlib import Path

import pytest
import torch
from speakers import TEXT, reader, translator, writer
from tolerance import assert_close
from torch.utils.flop_counter import FlopCounterMode

import clearhead as ch
from clearhead import nn as cn
from clearhead.errors import InputError, LoadError
from clearhead.lens import open_trace
from clearhead.lens.tokens import of_ids


@pytest.mark.parametrize("make", [reader, writer, translator])
def test_tokens_are_stretches_of_the_text(make: object, tmp_path: Path) -> None:
    """No half character, no vocabulary spelling; offsets cut the text where the token stands."""
    trace = make(tmp_path).trace(TEXT)  # type: ignore[operator]
    for token in trace.tokens:
        assert token.special or TEXT[token.start : token.end] == token.text
        assert "�" not in token.label and "Ġ" not in token.label and "▁" not in token.label
        assert token.label.strip() == token.label != ""
    shown = "".join(t.text for t in trace.tokens if not t.special and not _again(trace.tokens, t))
    assert shown.replace(" ", "") == TEXT.replace(" ", "")


def _again(tokens: list, token: object) -> bool:
    """A later piece of a character that was shown already."""
    first = next(t for t in tokens if (t.start, t.end) == (token.start, token.end))  # type: ignore[attr-defined]
    return first is not token and token.end > token.start  # type: ignore[attr-defined]


def test_split_characters_share_their_letters_and_are_numbered(tmp_path: Path) -> None:
    words = writer(tmp_path).tokenizer
    ids = words.encode("龘 ok", specials=False).ids
    labels = [token.label for token in of_ids(ids, words)]
    assert labels[:3] == ["龘①", "龘②", "龘③"] and labels[-1][-1] == "k"
    encoded = [token.label for token in writer(tmp_path).trace("龘 ok").tokens if not token.special]
    assert encoded[:3] == labels[:3]


def test_a_pair_of_texts_is_read_as_one_with_types(tmp_path: Path) -> None:
    trace = reader(tmp_path).trace("the fox", "the dog")
    assert [t.label for t in trace.tokens if t.special] == ["[CLS]", "[SEP]", "[SEP]"]


@torch.no_grad()
def test_frames_are_what_decoding_saw(tmp_path: Path) -> None:
    """Every frame equals a cached step of its own: the chances, and the row of attention."""
    for make in (writer, translator):
        bundle = make(tmp_path)
        trace = bundle.trace(TEXT, generate=True, max_new_tokens=5)
        said = [frame.token.id for frame in trace.frames]
        assert said and len(said) <= 5
        model, record, cache = bundle.model, cn.Recorder(), bundle.model.cache()
        begun = trace.input.target_ids or trace.input.ids
        memory = model.encode(torch.tensor([trace.input.ids])) if trace.input.target_ids else None
        fed, last = list(begun[: trace.input.prompt]), trace.layers(trace.kinds[-1]) - 1
        for frame in trace.frames:
            new = torch.tensor([fed])
            side = "cross" if memory else "attn"
            tap = record.tap(f"*blocks.{last}.{side}.pattern")
            if memory:
                logits = model.read(model.decode(new, memory, cache=cache, tap=tap))
            else:
                logits = model(new, cache=cache, tap=tap)
            chances = logits[0, -1].softmax(-1)
            assert int(chances.argmax()) == frame.token.id
            assert_close(chances.max(), torch.tensor(frame.probability), 1e-5)
            (weights,) = record.values()
            assert_close(frame.attention(), weights[0, :, -1], 1e-5)
            fed = [frame.token.id]


def test_a_beam_search_keeps_its_tree_and_every_hypothesis_can_be_traced(tmp_path: Path) -> None:
    bundle = translator(tmp_path)
    trace = bundle.trace(TEXT, beams=3, max_new_tokens=4)
    tree = trace.tree
    assert tree is not None and len(tree.answers) == 3
    scores = [score for _, score in tree.answers]
    assert scores == sorted(scores, reverse=True)
    assert {branch.fate for branch in tree.branches} >= {"kept", "pruned"}
    assert [t.id for t in tree.best().target_tokens[1:]] == tree.answers[0][0]
    branch = max((b for b in tree.branches if b.fate == "kept"), key=lambda b: b.step)
    path = tree.path(branch.id)
    assert [b.step for b in path] == list(range(branch.step + 1))
    assert path[-1].score == pytest.approx(sum(b.logprob for b in path), abs=1e-4)
    there = tree.trace(branch.id)
    assert [t.id for t in there.target_tokens[1:]] == [b.token.id for b in path]
    assert there.attention("cross").shape[-2] == len(path) + 1
    with pytest.raises(InputError, match="no branch"):
        tree.path(10**6)


@torch.no_grad()
def test_the_last_row_of_the_logit_lens_is_the_answer(tmp_path: Path) -> None:
    for make in (reader, writer, translator):
        trace = make(tmp_path).trace(TEXT)
        guesses = trace.logit_lens(3)
        want = trace.answer.softmax(-1).topk(3)
        assert torch.equal(guesses.ids[-1], want.indices)
        assert_close(guesses.probabilities[-1], want.values)
        assert len(guesses.labels) == len(trace.hidden()) == trace.record.depth(trace.head_side) + 1


def test_what_is_not_there_is_one_line(tmp_path: Path) -> None:
    bundle = writer(tmp_path)
    trace = bundle.trace(TEXT)
    for ask, said in (
        (lambda: trace.attention(layer=3), "no layer 3 in self attention; it has 3, from 0 to 2"),
        (lambda: trace.attention(layer=0, head=4), "no head 4 in layer 0 of self attention; it has 4"),
        (lambda: trace.attention("cross"), "no 'cross' attention; it has self"),
        (lambda: trace.hidden(5), "no hidden layer 5"),
        (lambda: trace.hidden(side="encoder"), "has no 'encoder'"),
        (lambda: trace.activation("tower.blocks.0.ff.aut"), "did you mean 'tower.blocks.0.ff.out'"),
        (lambda: bundle.trace("word " * 80), "tokens, this model reads at most 48; shorten it"),
        (lambda: bundle.trace([]), "the text is empty"),
        (lambda: bundle.trace(TEXT, "x", generate=True), "not both"),
        (lambda: reader(tmp_path).trace(TEXT, generate=True), "cannot generate"),
        (lambda: trace.save("a.jpg"), "given a.jpg"),
        (lambda: trace.save("/nowhere/a.png"), "no folder /nowhere"),
        (lambda: trace.save("a.png", view="hat"), "did you mean 'heat'"),
    ):
        with pytest.raises(InputError, match=said):
            ask()
    bundle.tokenizer = None
    with pytest.raises(InputError, match="needs a tokenizer"):
        bundle.trace(TEXT)


def test_a_file_that_is_no_trace_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nonsense")
    with pytest.raises(LoadError, match="cannot be opened as a trace"):
        open_trace(tmp_path / "a.safetensors")
    ch.save(ch.build("gpt2", n_embd=16, n_layer=1, n_head=2, vocab_size=30), tmp_path / "m")
    with pytest.raises(InputError, match="is not a trace"):
        open_trace(tmp_path / "m" / "model.safetensors")


@torch.no_grad()
def test_a_look_at_one_head_computes_one_head() -> None:
    """What makes 1,024 tokens quick: one product of queries and keys, and no other head's."""
    bundle = ch.build("gpt2", n_embd=64, n_head=4, n_layer=2, vocab_size=64)
    trace = bundle.trace(torch.arange(256) % 64)
    with FlopCounterMode(display=False) as counter:
        trace.attention(layer=0, head=3)
    assert counter.get_total_flops() == 2 * 256 * 256 * 16
