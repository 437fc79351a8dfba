"""What every test stands on: one torch thread, repeatable examples, no warnings swallowed."""

import os

# Some virtual machines announce AMX and then refuse it: bfloat16 products die of an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import properties
import pytest
import torch

from clearhead.generate import player

torch.set_num_threads(int(os.environ.get("CLEARHEAD_TEST_THREADS", "1")))
# However few tokens a test asks for, a tape is made of the steps that are alike; `shipped` is the other way.
SHIPPED_WORTH, player.WORTH = player.WORTH, 0
properties.choose_profile()


def pytest_configure(config: pytest.Config) -> None:
    properties.configure(config)


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> int:
    """Decoding as users have it: a tape only where at least so many steps are left."""
    monkeypatch.setattr(player, "WORTH", SHIPPED_WORTH)
    return SHIPPED_WORTH
