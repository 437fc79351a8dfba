"""Freed memory stays with the process: a large block that is freed and allocated again costs no new pages."""

import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from clearhead.malloc import disable_trim
assert {keep} is None or disable_trim()
x = torch.ones(16 * 2**20)  # 64 MB: more than the allocator would keep
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
x + 1.0, x + 1.0
before = faults()
for _ in range(20):
    x + 1.0
print(faults() - before)
"""


def faults(keep: bool | None) -> int:
    code = COUNT.format(keep=keep)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux's allocator is what it is about")
def test_freed_memory_is_reused() -> None:
    # A page has 4 kB: twenty blocks of 64 MB are 330,000 of them. A small block in the way may cost a few.
    assert faults(keep=True) < faults(keep=None) / 3
