"""Spoiled model folders: each opens and answers, or is refused in one line. See tests/spoiled.py."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import spoiled

MANY = 10_000


def test_spoiled_folders_answer_or_are_refused_in_one_line(tmp_path: Path) -> None:
    outcome = spoiled.run(7, range(160), spoiled.bases(tmp_path / "bases"), tmp_path)
    assert not outcome.bad, json.dumps(outcome.bad[:3], indent=1)
    assert outcome.opened > 30 and outcome.refused > 60  # some damage must show, some cannot


def test_whole_folders_open(tmp_path: Path) -> None:
    """What the cases above are made from."""
    for name, folder in spoiled.bases(tmp_path / "bases").items():
        assert spoiled.attempt(lambda folder=folder: spoiled.use(folder)) == ("opened", ""), name


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_ten_thousand_spoiled_folders(capsys: pytest.CaptureFixture[str]) -> None:
    """Fresh ones each time; the seed is printed: `python tests/spoiled.py SEED CASE CASE+1` repeats one."""
    seed = random.SystemRandom().randrange(10**6)
    halves = [(0, MANY // 2), (MANY // 2, MANY)]
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", spoiled.__file__, str(seed), str(first), str(last)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, last in halves
    ]
    lines = [json.loads(line) for child in children for line in child.communicate()[0].splitlines()]
    faults = [line for line in lines if "what" in line]
    opened, refused = (sum(line.get(key, 0) for line in lines) for key in ("opened", "refused"))
    figures = f"{opened} opened, {refused} refused, {len(faults)} at fault"
    with capsys.disabled():
        sys.stdout.write(f"\n{MANY:,} spoiled folders, seed {seed}: {figures}\n")
    assert not faults, json.dumps(faults[:5], indent=1)
    assert opened + refused == MANY and all(child.returncode == 0 for child in children)
