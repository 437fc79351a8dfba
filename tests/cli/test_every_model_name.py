"""Every command that takes a model takes every way to name one: a folder, a Hub id, a .gguf file.

The commands come from the command tree, by what the help of their arguments says. The same model under
another name gives the same output; a model that a command cannot use is one line and exit 2.
"""

from collections.abc import Iterator
from pathlib import Path

import ggufs
import huggingface_hub
import pytest
import torch
from checkpoints import block_sockets
from cyclopts import App
from cyclopts.argument import Argument

import clearhead as ch
from clearhead.cli.main import app, main
from clearhead.text import train_tokenizer

LINES = ["the cat sat on a mat", "a dog ran", "the dog sat"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
# What a command needs besides the model, and the kinds of model that it works with: at least one.
WORDS: dict[tuple[str, ...], tuple[list[str], set[str]]] = {
    ("inspect",): (["--json"], {"llama", "labels", "hidden"}),
    ("plan",): (["--json"], {"llama", "labels", "hidden"}),
    ("generate",): (["the cat", "--max-new-tokens", "4"], {"llama"}),
    ("chat",): (["-m", "the cat", "--max-new-tokens", "4"], {"llama"}),
    ("predict",): (["the cat", "--json"], {"labels"}),
    ("eval",): (["LINES"], {"llama"}),
    ("data", "check"): (["LINES"], {"llama", "labels", "hidden"}),
    ("embed",): (["LINES"], {"llama", "labels", "hidden"}),
    ("certify",): (["--json"], {"llama", "labels", "hidden"}),
    ("look",): (["the cat", "--layer", "0", "--head", "0"], {"llama", "labels", "hidden"}),
    ("look", "architecture"): ([], {"llama", "labels", "hidden"}),
    ("look", "positions"): (["own"], {"labels", "hidden", "llama"}),
}
# Training is compared below; merging and the page of the studio have tests of their own.
ELSEWHERE = {("studio",), ("train",), ("merge",)}
WAYS = [("llama", "folder"), ("llama", "hub"), ("llama", "gguf")]
WAYS += [(kind, way) for kind in ("labels", "hidden") for way in ("folder", "hub")]


def commands(parent: App, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in parent:
        if not name.startswith("-"):
            yield (*words, name), parent[name]
            yield from commands(parent[name], (*words, name))


def model_argument(command: App) -> Argument | None:
    """The argument that names a model; its help says so."""
    if command.default_command is None:
        return None
    found = command.assemble_argument_collection(parse_docstring=True)
    named = [a for a in found if "hub id" in (a.parameter.help or "").lower()]
    return named[0] if named else None


TAKING = {words: argument for words, command in commands(app) if (argument := model_argument(command))}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same LLaMA as a folder and as a file, and two encoders."""
    place = tmp_path_factory.mktemp("models")
    ggufs.write(place / "llama.gguf", ggufs.llama())
    ch.load(place / "llama.gguf").save(place / "llama")
    tokenizer = train_tokenizer(LINES, kind="wordpiece", vocab=90, frame="cls-sep")
    for kind in ("labels", "hidden"):
        names = {"0": "good", "1": "bad"}
        bundle = ch.build("bert", task=kind, vocab_size=tokenizer.vocab, id2label=names, **SMALL)
        bundle.tokenizer = tokenizer
        bundle.save(place / kind)
    (place / "lines.txt").write_text("\n".join(LINES))
    return place


@pytest.fixture
def run(models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Run a command with a model; the hub is a folder and the network is off."""
    block_sockets(monkeypatch)
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    def download(repo_id: str, **_: object) -> str:
        asked.append(repo_id)
        return str(models / repo_id.removeprefix("org/"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)

    def start(words: tuple[str, ...], kind: str, way: str) -> tuple[int, str, str]:
        asked.clear()
        name = {"folder": str(models / kind), "hub": f"org/{kind}", "gguf": str(models / f"{kind}.gguf")}[way]
        rest = [str(models / "lines.txt") if word == "LINES" else word for word in WORDS[words][0]]
        option = [] if TAKING[words].required else [TAKING[words].name]
        line = [*words, *option, name, *rest] if not option else [*words, *rest, *option, name]
        with pytest.raises(SystemExit) as done:
            main(line)
        assert set(asked) <= {name} and bool(asked) == (way == "hub")
        output = capsys.readouterr()
        plain = output.out.replace(name, "MODEL").replace(str(models / kind), "MODEL")
        return int(done.value.code or 0), plain, output.err

    return start


def test_the_list_of_commands_is_that_of_the_program() -> None:
    assert set(TAKING) - ELSEWHERE == set(WORDS), "say what the command needs besides a model"
    assert set(TAKING) >= ELSEWHERE
    unnamed = [
        words for words, argument in TAKING.items() if "gguf" not in str(argument.parameter.help).lower()
    ]
    assert unnamed == [], "the help says all three ways"


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
@pytest.mark.parametrize(("kind", "way"), WAYS, ids=lambda each: str(each))
def test_a_command_takes_every_name_of_a_model(words: tuple[str, ...], kind: str, way: str, run) -> None:
    code, out, err = run(words, kind, way)
    if kind in WORDS[words][1]:
        assert code == 0 and out.strip(), err
        # transformers, which certify compares with, is asked about folders only.
        if way != "folder" and (words, way) != (("certify",), "gguf"):
            assert run(words, kind, "folder")[1] == out
    else:
        assert code == 2 and out == "" and err.startswith("clearhead: ") and err.count("\n") == 1, err
        assert "Error" not in err


@pytest.mark.parametrize("way", ["hub", "gguf"])
def test_training_starts_from_every_name_of_a_model(
    way: str, models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        huggingface_hub,
        "snapshot_download",
        lambda repo_id, **_: str(models / repo_id.removeprefix("org/")),
    )
    names = {"folder": str(models / "llama"), "hub": "org/llama", "gguf": str(models / "llama.gguf")}
    for each in ("folder", way):
        line = ["train", "lm", str(models / "lines.txt"), "--from", names[each], "--steps", "2"]
        with pytest.raises(SystemExit) as done:
            main([*line, "--max-length", "16", "--out", str(tmp_path / each)])
        assert (done.value.code or 0) == 0
    one, two = (ch.load(tmp_path / each).model.state_dict() for each in ("folder", way))
    assert all(torch.equal(one[name], two[name]) for name in one)
