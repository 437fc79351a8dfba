"""Damaged and malicious run folders through `clearhead train --resume`: one line, or the right result."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hostile import NAMES, TEXTS, VALUES, Found, damage, judge, make_fifo_or_link, value
from safetensors.torch import load_file, save_file

from clearhead.cli.main import main
from clearhead.store.manifest import _serialize, write_manifest
from clearhead.train import checkpoints

LAUGHS = "a0: &a0 [x]\n" + "".join(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]\n" for i in range(12))
MERGES = "a0: &a0 {x0: 1}\n" + "".join(
    f"a{i + 1}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 9)}], x{i + 1}: 1}}\n" for i in range(12)
)
YAMLS = [
    "", "~", "[]", "- a\n- b", "a: &a [*a]", LAUGHS, MERGES, LAUGHS + "task: *a12", "[" * 5000,
    "{" * 5000, "a: " * 500, "task: !!python/object/apply:os.system [id]", "task: 2001-99-99",
    "train: {steps: 0x" + "f" * 9000 + "}", "? [a]\n: b", "a: !!binary xx",
    "task: causal\ntask: causal\n", "\t", "a: 'x", "x" * 70_000, "a: 1e999", "%YAML 9.9\n---\na: b",
    "\x00", "task: causal\ntrain: [1]\n", "task: causal\ndata: text\n", "task: causal\nmodel: 3\n",
    "task: [causal]\n", "1: 2",
]  # fmt: skip
KEYS = [
    "task", "about", "data", "data.source", "data.valid", "data.map", "data.language", "data.length",
    "data.tokens", "data.rows", "data.smoothing", "data.augment", "data.back", "data.masking",
    "tokenizer", "tokenizer.kind", "tokenizer.vocab", "model", "model.family", "model.edit",
    "model.n_embd", "model.n_layer", "train", "train.steps", "train.seed", "train.lr", "train.optimizer",
    "train.optimizer.kind", "train.optimizer.betas", "train.schedule", "train.schedule.kind",
    "train.schedule.warmup", "train.clip", "train.micro", "train.precision", "train.ema",
    "train.average", "train.patience", "train.save_every", "train.valid_every", "train.keep",
    "train.time_budget", "train.threads", "unknown", "train.unknown", "data.unknown",
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A run in the middle, with two checkpoints, and the model it ends with."""
    home = tmp_path_factory.mktemp("runs")
    (home / "prose.txt").write_text("\n".join(f"the old dog number {i}" for i in range(40)) + "\n")
    words = [
        "--model.n_embd", "8", "--model.n_layer", "1", "--model.n_head", "1", "--train.steps", "5",
        "--train.save_every", "2", "--train.keep", "3", "--train.schedule.warmup", "1", "--data.length", "8",
        "--data.rows", "2", "--train.ema", "0.9",
    ]  # fmt: skip
    for name in ("straight", "run"):
        with pytest.raises(SystemExit):
            main(["train", "gpt-chars", str(home / "prose.txt"), *words, "--out", str(home / name)])
    shutil.rmtree(home / "run" / "checkpoint-000005")
    published = json.loads((home / "run" / "MANIFEST.json").read_text())["files"]
    for name in ("MANIFEST.json", *published):
        (home / "run" / name).unlink()
    assert list(checkpoints(home / "run")) == [2, 4]
    return home / "run", (home / "straight" / "model.safetensors").read_bytes()


def _at(tree: Any, path: list[str], new: Any) -> None:
    *parents, last = path
    for name in parents:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[last] = new


def spoil_settings(chance: random.Random, run: Path) -> None:
    path = run / "settings.yaml"
    tree = yaml.safe_load(path.read_text())
    for _ in range(chance.choice([1, 1, 2])):
        _at(tree, chance.choice(KEYS).split("."), chance.choice([*VALUES, *TEXTS, *NAMES]))
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8", errors="replace")


def spoil_yaml(chance: random.Random, run: Path) -> None:
    (run / "settings.yaml").write_text(chance.choice(YAMLS))


def spoil_state(chance: random.Random, run: Path) -> None:
    """What the checkpoint says of itself, sealed again: only its contents are wrong."""
    path = _newest(run)
    numbers = json.loads((path / "state.json").read_text())
    keys = [
        *(f"state.{name}" for name in numbers["state"]),
        *numbers,
        "training.lr",
        "model.kind",
        "task.data",
    ]
    _at(numbers, chance.choice(keys).split("."), value(chance))
    (path / "state.json").write_text(json.dumps(numbers), errors="replace")
    _seal(path)


def spoil_tensors(chance: random.Random, run: Path) -> None:
    path = _newest(run)
    file = path / chance.choice(["state.safetensors", "model.safetensors"])
    tensors = load_file(file)
    name = chance.choice(sorted(tensors))
    kind = chance.randrange(5)
    if kind == 0:
        del tensors[name]
    elif kind == 1:
        tensors[name] = torch.zeros(chance.choice([(1,), (3, 3), (0,), tensors[name].shape]))
    elif kind == 2:
        tensors[chance.choice([f"optimizer.{name}", "ema.x", "x", "optimizer./", "\x1b[31m"])] = tensors[
            name
        ].clone()
    elif kind == 3:
        tensors[name] = tensors[name].to(chance.choice([torch.int8, torch.float64, torch.float16]))
    else:
        tensors[name] = torch.full_like(tensors[name], float("nan"))
    save_file(tensors, file)
    _seal(path)


def spoil_manifest(chance: random.Random, run: Path) -> None:
    """A manifest whose seal is right and whose contents are not."""
    path = _newest(run) / "MANIFEST.json"
    body = json.loads(path.read_text())
    del body["seal"]
    entry = {"size": 1, "sha256": "0" * 64}
    odd: list[Callable[[], Any]] = [
        lambda: body.update(files=chance.choice([[], "x", None, 3, {}, {"a": 1}, {"a": []}])),
        lambda: body["files"].update(
            {chance.choice(["../../x", "/etc/passwd", "..", "", "a\0b", "/dev/zero"]): entry}
        ),
        lambda: body["files"].update(
            {"config.json": {"size": chance.choice(["1", -1, None, 2**70]), "sha256": "x"}}
        ),
        lambda: body["files"].pop(chance.choice(sorted(body["files"]))),
        lambda: body.update(step=value(chance), format=value(chance)),
        lambda: body.clear(),
    ]
    chance.choice(odd)()
    path.write_bytes(_serialize(body) if chance.random() < 0.9 else json.dumps(value(chance)).encode())


def spoil_log(chance: random.Random, run: Path) -> None:
    path = run / "metrics.jsonl"
    lines = [
        json.dumps(value(chance)) + "\n",
        '{"step": 1e400}\n',
        "[" * 3000 + "\n",
        '{"step": true}\n',
        "\x00" * 100,
        '{"st',
    ]
    added = "".join(chance.choices(lines, k=3)).encode("utf-8", "replace")
    path.write_bytes(damage(chance, path.read_bytes() + added))


def spoil_config(chance: random.Random, run: Path) -> None:
    path = _newest(run)
    config = json.loads((path / "config.json").read_text())
    config[chance.choice([*config, "clearhead"])] = value(chance)
    (path / "config.json").write_text(json.dumps(config), errors="replace")
    _seal(path)


def spoil_bytes(chance: random.Random, run: Path) -> None:
    """Any file of any checkpoint, damaged and not sealed again: noticed, and left out."""
    path = chance.choice([p for p in run.rglob("*") if p.is_file() and p.parent != run])
    path.write_bytes(damage(chance, path.read_bytes()))


def spoil_link(chance: random.Random, run: Path) -> None:
    path = chance.choice([p for p in run.rglob("*") if p.is_file() and p.name != ".lock"])
    path.unlink()
    make_fifo_or_link(chance, path)


def spoil_folder(chance: random.Random, run: Path) -> None:
    odd: list[Callable[[], Any]] = [
        lambda: shutil.rmtree(_newest(run)),
        lambda: (run / "checkpoint-000009").mkdir(),
        lambda: (run / "checkpoint-999999999999999999999").mkdir(),
        lambda: (run / "checkpoint-000008").write_text("x"),
        lambda: _newest(run).rename(run / "checkpoint-000099"),
        lambda: (run / ".tmp-x").mkdir(),
        lambda: (run / ".del-x").write_text("x"),
        lambda: shutil.copytree(_newest(run), run / "checkpoint-000003"),
        lambda: (run / "settings.yaml").unlink(),
        lambda: (run / "metrics.jsonl").unlink(),
    ]
    chance.choice(odd)()


def _newest(run: Path) -> Path:
    return list(checkpoints(run).values())[-1]


def _seal(path: Path) -> None:
    (path / "MANIFEST.json").unlink()
    write_manifest(path, [each.name for each in path.iterdir()], 4)


SPOIL: dict[str, Callable[[random.Random, Path], None]] = {
    "settings": spoil_settings, "yaml": spoil_yaml, "state": spoil_state, "tensors": spoil_tensors,
    "manifest": spoil_manifest, "log": spoil_log, "config": spoil_config, "bytes": spoil_bytes,
    "link": spoil_link, "folder": spoil_folder,
}  # fmt: skip
PARTS = list(SPOIL)
EXACT = ("log", "bytes", "folder")  # after these a run that ends must end in the same bits


def fuzz(seed: object, count: int, base: Path, model: bytes, home: Path, parts: list[str]) -> Found:
    found = Found()
    for number in range(count):
        run, chance, case = home / "run", random.Random(f"{seed}-{number}"), f"{seed}-{number}"
        shutil.copytree(base, run)
        part = chance.choice(parts)
        SPOIL[part](chance, run)
        before = len(found.faults)
        judge(found, f"{case} {part}", lambda run=run: main(["train", "--resume", str(run)]), (0, 2, 3))
        ended = (run / "model.safetensors").is_file()
        if part in EXACT and ended and (run / "model.safetensors").read_bytes() != model:
            found.other.append(f"{case} {part}: ended in other bits")
        if len(found.faults) == before and chance.random() < 0.2:
            _must_go_on(found, f"{case} {part}", run, base, model)
        shutil.rmtree(run)
    return found


def _must_go_on(found: Found, case: str, run: Path, base: Path, model: bytes) -> None:
    """With the spoiled files put back, the run goes on as if nothing had been: a refusal has lost nothing."""
    for path in [p for p in base.rglob("*") if p.is_file() and p.name != ".lock"]:
        there = run / path.relative_to(base)
        there.unlink(missing_ok=True)
        there.parent.mkdir(exist_ok=True)
        shutil.copy(path, there)
    for step, path in checkpoints(run).items():
        if step not in checkpoints(base):
            shutil.rmtree(path)
    judge(found, f"{case}, put back", lambda: main(["train", "--resume", str(run)]), (0,))
    if not (run / "model.safetensors").is_file() or (run / "model.safetensors").read_bytes() != model:
        found.other.append(f"{case}: put back, it ended in other bits")


def test_hostile_runs(runs: tuple[Path, bytes], tmp_path: Path) -> None:
    found = fuzz("house", 40, *runs, tmp_path, PARTS)
    assert found.faults == [], found


@pytest.mark.parametrize("text", YAMLS, ids=range(len(YAMLS)))
def test_settings_that_are_none(text: str, runs: tuple[Path, bytes], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run"))
    (run / "settings.yaml").write_text(text)
    found = Found()
    judge(found, "yaml", lambda: main(["train", "--resume", str(run)]), (2,))
    assert found.faults == [] and (run / "settings.yaml").read_text() == text


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_a_thousand_hostile_runs(
    runs: tuple[Path, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(10**9)
    found = fuzz(seed, 1000, *runs, tmp_path, PARTS)
    with capsys.disabled():
        print(f"\nseed {seed}: {found}")  # noqa: T201
    assert found.faults == [], f"seed {seed}: {found}"


@pytest.mark.parametrize("target", ["/proc/self/mem", "/dev/zero", "/dev/full", "nowhere"])
def test_a_log_that_is_a_link_is_one_line(target: str, runs: tuple[Path, bytes], tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs[0], tmp_path / "run"))
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(target)
    found = Found()
    judge(found, target, lambda: main(["train", "--resume", str(run)]), (2,))
    assert found.faults == []
