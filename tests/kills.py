"""A process that trains in children and kills them: `python kills.py FOLDER RANDOM INSIDE` prints JSON.

A child starts by a fork, so a life costs no imports. RANDOM lives end at a random moment, INSIDE lives end at
a touch of the disk: in the middle of a save. A finished run is followed by a new one, until all are spent.
`python kills.py FOLDER every` ends a life before each touch of the disk, from one checkpoint to the end.
A last word `lora` trains adapters instead of the whole model.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from toy import Toy, full_training, remains, strays, toy_bundle

import clearhead
from clearhead.train import Trainer, checkpoint, checkpoints
from clearhead.train.atomic_write import newest_checkpoint
from clearhead.tune import Lora

torch.set_num_threads(1)
TUNED = sys.argv[-1] == "lora"
SETTINGS = {"steps": 40, "save_every": 4, "valid_every": 10}
DOORS = [
    (sys.modules["clearhead.store.write"], "save_file"), (checkpoint, "save_file"), (Path, "write_bytes"),
    (sys.modules["clearhead.store.adapter_folder"], "save_file"),
    (Path, "write_text"), (os, "replace"), (os, "rename"), (os, "fsync"), (shutil, "rmtree"),
]  # fmt: skip


def train(folder: Path) -> None:
    bundle = toy_bundle()
    if TUNED:
        bundle = clearhead.tune(bundle, Lora(rank=2, dropout=0.1))
    Trainer(bundle, Toy(parts=2), full_training(**SETTINGS), folder).run()


def die_at(touch: int, late: bool) -> None:
    """SIGKILL from within: before the n-th touch of the disk, or right after it."""
    left = touch

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0 and not late:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = real(*args, **options)
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    for where, name in DOORS:
        setattr(where, name, wrap(getattr(where, name)))


def live(folder: Path, delay: float | None = None, touch: int | None = None, late: bool = False) -> bool:
    """One life of a run; whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            if touch is not None:
                die_at(touch, late)
            train(folder)
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a life ended in an error")
    return os.WIFSIGNALED(status)


def main(home: Path, by_chance: int, inside: int) -> dict[str, int]:
    chance = random.Random(7)
    train(home / "straight")  # here, not in a child: what torch imports late is then there for all children
    began = time.monotonic()
    live(home / "again")
    length = time.monotonic() - began
    wanted = remains(home / "straight")
    plan = ["chance"] * by_chance + ["inside"] * inside
    chance.shuffle(plan)
    runs = same = kills = saved = 0
    folder = home / "run-0"
    while plan:
        if plan[-1] == "chance":
            killed = live(folder, delay=chance.uniform(0.0, 0.7 * length))
        else:
            killed = live(folder, touch=chance.randrange(90), late=chance.random() < 0.5)
        if killed:
            plan.pop()
            kills += 1
            saved += (
                newest_checkpoint(folder, lambda line: sys.exit(line)) is not None if folder.exists() else 0
            )
        if killed and plan:
            continue
        live(folder)
        runs, same = runs + 1, same + (remains(folder) == wanted)
        if strays(folder):
            raise SystemExit(f"left behind: {strays(folder)}")
        folder = home / f"run-{runs}"
    return {"kills": kills, "with a checkpoint": saved, "runs": runs, "identical": same}


def at_every_touch(home: Path) -> dict[str, int]:
    SETTINGS.update(steps=3, save_every=1, valid_every=2)
    train(home / "straight")
    wanted = remains(home / "straight")
    first = home / "first"
    for touch in range(200):  # the least number of touches that leaves a checkpoint
        shutil.rmtree(first, ignore_errors=True)
        live(first, touch=touch)
        if checkpoints(first):
            break
    same = 0
    for touch in range(500):
        folder = home / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first, folder)
        killed = live(folder, touch=touch)
        if newest_checkpoint(folder, lambda line: sys.exit(line)) is None:
            raise SystemExit(f"no whole checkpoint after touch {touch}")
        live(folder)
        same += remains(folder) == wanted and not strays(folder)
        if not killed:
            return {"touches": touch + 1, "identical": same}
    raise SystemExit("a run has no end")


if __name__ == "__main__":
    home, *words = Path(sys.argv[1]), *(word for word in sys.argv[2:] if word != "lora")
    found = at_every_touch(home) if words == ["every"] else main(home, *map(int, words))
    print(json.dumps(found))  # noqa: T201
