"""Models with experts, with sinks and without attention, as the commands show them."""

from pathlib import Path

import pytest
import trained
from references import tiny_sizes

import clearhead as ch
from clearhead.cli.main import main
from clearhead.families import FAMILIES
from clearhead.text import Tokenizer


def folder_of(name: str, path: Path) -> str:
    words = Tokenizer.read(trained.write(path, "bytes"))
    assert words is not None
    bundle = ch.build(name, **tiny_sizes(FAMILIES[name]) | {"vocab_size": words.vocab})
    bundle.tokenizer = words
    ch.save(bundle, path)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_a_model_without_attention_is_shown_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = folder_of("fnet", tmp_path)
    for option in ("--logits", "--activations"):
        assert run(capsys, "look", model, "a b", option)[0] == 0
    assert run(capsys, "look", model, "a b", "--logits", "--json")[0] == 0
    code, _, err = run(capsys, "look", model, "a b")
    assert code == 2 and "its token mixer is not attention" in err


def test_options_of_routing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = folder_of("mixtral", tmp_path)
    out = run(capsys, "look", model, "a b", "--routing", "--layer", "1")[1]
    assert "layer 1" in out and "layer 0" not in out
    assert run(capsys, "look", model, "a b", "--routing", "--layer", "9")[0] == 2
    assert "leave out --head" in run(capsys, "look", model, "a b", "--routing", "--head", "1")[2]


def test_a_trace_with_sinks_says_where_the_rest_is(tmp_path: Path) -> None:
    bundle = ch.load(folder_of("gpt_oss", tmp_path))
    assert any("attention sink" in note for note in bundle.trace("a b").notes)


def test_inspect_tells_experts_and_takes_model_types(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "inspect", "mixtral-8x7b")[1]
    assert "8 experts of Gated 14336 silu, 2 per token" in out and "12,879,925,248 of them" in out
    assert "attention sinks" in run(capsys, "inspect", "gpt-oss-20b")[1]
    assert "Gemma 3" in run(capsys, "inspect", "gemma3_text")[1]
