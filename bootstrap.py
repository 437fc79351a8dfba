"""A fresh clone -> a ready .venv: `python3 bootstrap.py demo|dev`. Standard library only.

`demo` installs the package with the studio, `dev` also the tools of the tests. A stamp in .venv holds a
hash of what it was installed from, so a second run returns at once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMPS = {"demo": VENV / ".ready-demo", "dev": VENV / ".ready"}
INPUTS = ("pyproject.toml", "constraints.txt", "bootstrap.py")
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def main() -> int:
    if sys.version_info < (3, 10):
        return _stop(f"Python 3.10 or newer is needed; this is {sys.version.split()[0]}")
    kind = sys.argv[1] if len(sys.argv) > 1 else "dev"
    if kind not in STAMPS:
        return _stop(f"there is no set-up called {kind!r}; known: {', '.join(STAMPS)}")
    wanted, enough = _fingerprint(), [STAMPS["dev"], STAMPS[kind]]  # the tools of the tests include the rest
    if any(stamp.exists() and stamp.read_text() == wanted for stamp in enough):
        STAMPS[kind].write_text(wanted)  # newer than its inputs again, so make will not call us next time
        return 0
    try:
        import ensurepip  # noqa: F401  what Debian leaves out when it packages python3 alone
        import venv  # noqa: F401
    except ImportError:
        return _stop("Python's venv is missing; on Debian or Ubuntu: apt install python3-venv")
    print("setting up .venv (once; torch is the large part)", flush=True)
    tools = ["--group", "dev"] if kind == "dev" else []
    # Dependency groups need pip 25.1. Constraints keep torch at the CPU build we pin.
    if (
        subprocess.call([sys.executable, "-m", "venv", str(VENV)]) != 0
        or _pip("install", "--upgrade", "pip>=25.1") != 0
        or _pip("install", "-c", "constraints.txt", "-e", ".[studio]", *tools) != 0
    ):
        return _stop("set-up failed; the lines above say where. Fix that and run it again.")
    STAMPS[kind].write_text(wanted)
    return 0


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
