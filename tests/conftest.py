"""What every test stands on: one torch thread, repeatable examples, no warnings swallowed."""

import os

# Some virtual machines announce AMX and then refuse it: bfloat16 products die of an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

from collections.abc import Iterator

import properties
import pytest
import replaying
import torch

torch.set_num_threads(int(os.environ.get("CLEARHEAD_TEST_THREADS", "1")))
properties.choose_profile()


def pytest_configure(config: pytest.Config) -> None:
    properties.configure(config)


@pytest.fixture(params=replaying.MODES)
def replay(request: pytest.FixtureRequest) -> Iterator[str]:
    """A law of generation holds with replay off, as users have it, and from the first step on."""
    with replaying.replayed(request.param):
        yield request.param
