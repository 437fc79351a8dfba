"""The model that a run publishes has a manifest: `clearhead inspect` notices a changed byte."""

import json
import shutil
from pathlib import Path

import pytest
from toy import Toy, full_training, strays, toy_bundle

import clearhead as ch
from clearhead.cli.main import main
from clearhead.train import Trainer, checkpoint

FILES = ["config.json", "model.safetensors"]


def train(folder: Path) -> None:
    Trainer(toy_bundle(), Toy(parts=2), full_training(steps=2, valid_every=None), folder).run()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published") / "run"
    train(folder)
    return folder


@pytest.fixture
def run(published: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "run"))


def inspect(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as done:
        main(["inspect", *map(str, words)])
    out, err = capsys.readouterr()
    return int(done.value.code or 0), out, err


def test_what_matches_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = json.loads((run / "MANIFEST.json").read_text())
    assert sorted(manifest["files"]) == FILES and manifest["step"] == 2
    code, out, err = inspect(capsys, run)
    assert (code, err) == (0, "") and "2 match MANIFEST.json" in out
    assert json.loads(inspect(capsys, run, "--json")[1])["manifest"] == {"files": 2}
    assert "4 match MANIFEST.json" in inspect(capsys, run / "checkpoint-000002")[1]


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize("name", [*FILES, "MANIFEST.json"])
def test_a_changed_byte_is_one_line_and_exit_2(
    name: str, words: list[str], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray((run / name).read_bytes())
    for place in (len(data) // 3, len(data) - 2):
        data[place] ^= 1
        (run / name).write_bytes(data)
        code, out, err = inspect(capsys, run, *words)
        assert code == 2 and out == "" and err.count("\n") == 1
        assert f"{run.name}/{name} is not what was saved" in err and "train --resume" in err
        data[place] ^= 1
    (run / name).write_bytes(data)
    assert inspect(capsys, run)[0] == 0


def test_a_save_over_it_takes_the_manifest_along(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ch.save(toy_bundle(seed=5), run)
    assert not (run / "MANIFEST.json").exists()
    code, out, err = inspect(capsys, run)
    assert (code, err) == (0, "") and "MANIFEST" not in out
    train(run)  # a finished run publishes again
    assert "2 match MANIFEST.json" in inspect(capsys, run)[1] and strays(run) == []


def test_somebody_elses_manifest_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "MANIFEST.json").write_text('{"assets": []}')
    ch.save(toy_bundle(), tmp_path)
    assert (tmp_path / "MANIFEST.json").read_text() == '{"assets": []}'
    assert inspect(capsys, tmp_path)[0] == 0


def test_what_transformers_saves_over_it_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import GPT2LMHeadModel

    GPT2LMHeadModel.from_pretrained(run).save_pretrained(run)
    code, _, err = inspect(capsys, run)
    assert code == 2 and "is not what was saved" in err and "changed after the run wrote it" in err


def test_killed_before_the_manifest_there_is_none_and_a_resumed_run_writes_it(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The manifest of the model before must not be there when the files of the next one come."""

    def killed(*words: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            train(run)
    assert not (run / "MANIFEST.json").exists() and inspect(capsys, run)[0] == 0
    train(run)
    assert "2 match MANIFEST.json" in inspect(capsys, run)[1]


def test_a_save_that_fails_leaves_the_manifest(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.errors import SaveError
    from clearhead.store import atomic

    before = (run / "MANIFEST.json").read_bytes()
    real = atomic.os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).name == "model.safetensors" and "old" not in str(source):
            raise OSError(28, "No space left on device")
        real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, "replace", full)
        with pytest.raises(SaveError):
            ch.save(toy_bundle(seed=5), run)
    assert (run / "MANIFEST.json").read_bytes() == before
