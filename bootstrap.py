"""A fresh clone -> a ready .venv: `python3 bootstrap.py`. Standard library only; doing it twice does nothing.

The stamp .venv/.ready holds a hash of what was installed from, so a second run returns at once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / ".ready"
INPUTS = ("pyproject.toml", "constraints.txt", "bootstrap.py")
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main() -> int:
    if sys.version_info < (3, 10):
        return _stop(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}")
    wanted = _fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        STAMP.touch()  # newer than its inputs again, so make will not call us next time
        return 0
    try:
        import ensurepip  # noqa: F401  what Debian leaves out when it packages python3 alone
        import venv  # noqa: F401
    except ImportError:
        return _stop("Python's venv is missing; on Debian or Ubuntu: apt install python3-venv")
    print("setting up .venv (once; torch is the large part)", flush=True)
    for step in (_make_venv, _new_pip, _install):
        if step() != 0:
            return _stop("set-up failed; the lines above say where. Fix that and run it again.")
    STAMP.write_text(wanted)
    return 0


def _make_venv() -> int:
    return subprocess.call([sys.executable, "-m", "venv", str(VENV)])


def _new_pip() -> int:
    """Dependency groups need pip 25.1."""
    return _pip("install", "--upgrade", "pip>=25.1")


def _install() -> int:
    """The package itself, editable, with the test tools. Constraints keep torch at the CPU build we pin."""
    return _pip("install", "-c", "constraints.txt", "-e", ".", "--group", "dev")


def _pip(*words: str) -> int:
    command = [str(PYTHON), "-m", "pip", *words, "--quiet", "--disable-pip-version-check"]
    return subprocess.call(command, cwd=ROOT)


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _stop(reason: str) -> int:
    print(f"bootstrap: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
