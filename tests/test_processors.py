"""The laws about bits again, under other code paths of the same machine. What a faster or an older processor
would choose can be chosen here by the environment, before torch is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAWS = [
    "tests/conform/test_exactness.py", "tests/conform/test_families.py", "tests/conform/test_models.py",
    "tests/conform/test_replay.py", "tests/bundle", "tests/train/test_resume.py", "tests/engine",
]  # fmt: skip
PATHS: dict[str, dict[str, str]] = {
    "torch-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "torch-plain": {"ATEN_CPU_CAPABILITY": "default"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "mkl-avx2": {"MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "mkl-sse": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "two-threads": {"CLEARHEAD_TEST_THREADS": "2", "OMP_NUM_THREADS": "2"},
}


@pytest.mark.proof
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PATHS)
def test_the_laws_hold_on_another_code_path(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not proof", "-p", "no:cacheprovider", *LAWS]
    workers = ["-n", "1" if "CLEARHEAD_TEST_THREADS" in PATHS[name] else "2"]
    done = subprocess.run(
        [*command, *workers], cwd=ROOT, env=os.environ | PATHS[name], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:]
