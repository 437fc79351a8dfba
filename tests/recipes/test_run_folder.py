"""The folder of a run: its settings are those of its checkpoints, and what is refused changes nothing."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy import strays

from clearhead.cli.main import main
from clearhead.recipes import load_run
from clearhead.train import checkpoints

TINY = [
    "--model.n_embd", "16", "--model.n_layer", "1", "--train.steps", "6", "--train.save_every", "2",
    "--train.valid_every", "6", "--train.schedule.warmup", "1", "--data.length", "16", "--data.rows", "2",
]  # fmt: skip
HERE = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def prose(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("prose") / "prose.txt"
    path.write_text("\n".join(f"the old dog number {i} finds a new apple" for i in range(60)) + "\n")
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as done:
        main(["train", *words])
    return int(done.value.code or 0), capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a call that must end with exit code 2."""
    code, err = call(capsys, *words)
    last = err.splitlines()[-1]
    assert code == 2 and last.startswith("clearhead: ") and "Traceback" not in err
    return last


def model_of(run: Path) -> bytes:
    return (run / "model.safetensors").read_bytes()


def test_other_settings_are_refused_before_anything_is_written(
    prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call(capsys, "gpt-chars", prose, *TINY, "--out", str(run))[0] == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    line = refused(capsys, "gpt-chars", prose, *TINY, "--train.lr", "0.5", "--out", str(run))
    assert "training.lr is 0.5 here" in line
    assert {path: path.read_bytes() for path in before} == before and strays(run) == []
    assert call(capsys, "--resume", str(run))[0] == 0
    assert model_of(run) == before[run / "model.safetensors"]


def test_a_run_that_was_killed_before_its_first_checkpoint_goes_on(
    prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import os, signal, sys\n"
        "from clearhead.train import atomic_write\n"
        "atomic_write.write_atomically = lambda *words: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from clearhead.train import checkpoint\n"
        "checkpoint.write_atomically = atomic_write.write_atomically\n"
        "from clearhead.cli.main import main\n"
        "main(sys.argv[1:])\n"
    )
    run, straight = tmp_path / "run", tmp_path / "straight"
    words = ["train", "gpt-chars", prose, *TINY, "--out", str(run)]
    paths = {"PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", code, *words], env={**os.environ, **paths})
    assert killed.returncode == -9 and checkpoints(run) == {}
    assert load_run(str(run / "settings.yaml")).train.steps == 6
    assert call(capsys, "--resume", str(run))[0] == 0
    assert call(capsys, "gpt-chars", prose, *TINY, "--out", str(straight))[0] == 0
    assert model_of(run) == model_of(straight)


def test_a_second_process_leaves_the_settings_of_the_first_alone(
    prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from clearhead.train.lock import locked

    run = tmp_path / "run"
    run.mkdir()
    (run / "settings.yaml").write_text("the first one's")
    with locked(run):
        line = refused(capsys, "gpt-chars", prose, *TINY, "--out", str(run))
    assert f"process {os.getpid()};" in line
    assert (run / "settings.yaml").read_text() == "the first one's"


def test_settings_that_change_no_number_are_recorded(
    prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call(capsys, "gpt-chars", prose, *TINY, "--out", str(run))[0] == 0
    model = model_of(run)
    assert call(capsys, "--resume", str(run), "--train.keep", "5", "--time-budget", "600")[0] == 0
    recorded = load_run(str(run / "settings.yaml")).train
    assert (recorded.keep, recorded.time_budget) == (5, 600.0) and model_of(run) == model


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("file", "is a file; expected a folder"),
        ("file/run", "cannot be written"),
        ("file/more/run", "cannot be written"),
    ],
)
def test_a_folder_that_cannot_be_made_is_one_line(
    place: str, why: str, prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    line = refused(capsys, "gpt-chars", prose, *TINY, "--out", str(tmp_path / place))
    assert why in line and (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc, in which nobody can make a folder")
def test_a_folder_nobody_can_write_is_one_line(prose: str, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("/proc/self/run", "/proc/clearhead/run"):
        assert "cannot be written" in refused(capsys, "gpt-chars", prose, *TINY, "--out", place)


WRITES = [(os, "write"), (os, "fsync"), (os, "replace"), (os, "ftruncate"), (Path, "write_bytes")]


@pytest.mark.parametrize("count", range(12))
@pytest.mark.parametrize("there", [False, True], ids=["a new folder", "an empty one"])
def test_a_disk_that_is_full_from_the_start_leaves_nothing(
    count: int, there: bool, prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the n-th write on no room is left; whatever the run had begun with is whole or gone."""
    run = tmp_path / "deep" / "run"
    if there:
        run.mkdir(parents=True)
    left = count

    def failing(real):
        def call(*words: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*words, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for where, name in WRITES:
            patch.setattr(where, name, failing(getattr(where, name)))
        line = refused(capsys, "gpt-chars", prose, *TINY, "--out", str(run))
    assert "No space left" in line
    settings = run / "settings.yaml"
    assert not settings.exists() or settings.stat().st_size > 0
    if not settings.exists():
        assert sorted(path.name for path in tmp_path.rglob("*")) == (["deep", "run"] if there else [])
    elif not checkpoints(run):
        assert load_run(str(settings)).train.steps == 6
    assert strays(run) == [] if run.exists() else True
    assert call(capsys, "gpt-chars", prose, *TINY, "--out", str(run))[0] == 0


def test_what_is_recorded_is_json_and_yaml_that_can_be_read(
    prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert call(capsys, "gpt-chars", prose, *TINY, "--out", str(run))[0] == 0
    assert load_run(str(run / "settings.yaml")).data.source == prose
    assert json.loads((run / "config.json").read_text())["n_embd"] == 16


@pytest.mark.parametrize(
    "setting",
    [
        "model.n_embd={}", "model.n_embd=null", "model.n_embd=1000000000", "model.n_layer=1000000",
        "model.edit=x", "model=3", "train.threads=2147483648", "train.micro=1e300", "train.steps=1e300",
        "train.lr=.nan", "data.length=x", "data.length=-1", "data.rows=1e9", "data.smoothing=2",
        "data.source=3", "data.map=[a]",
        "data.map={text: 3}", "tokenizer.vocab=0", "tokenizer.kind=[bpe]", "about=[1]", "data.augment=3",
        "data.augment={delete: x}", "data.augment={copies: x}", "data.augment={lexicon: 3}",
    ],
)  # fmt: skip
def test_settings_of_the_wrong_kind_are_one_line(
    setting: str, prose: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, value = setting.partition("=")
    settings = [f"{name}={value}"] if "." in name else []
    if not settings:  # a whole part of the tree cannot be given by a word
        (tmp_path / "my.yaml").write_text(f"task: causal\n{name}: {value}\n")
    recipe = str(tmp_path / "my.yaml") if not settings else "gpt-chars"
    line = refused(
        capsys, recipe, prose, *(TINY if settings else []), *settings, "--out", str(tmp_path / "run")
    )
    assert len(line) < 320 and not (tmp_path / "run").exists()
