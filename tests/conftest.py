"""What every test stands on: one torch thread, repeatable examples, no warnings swallowed."""

import os

# Some virtual machines announce AMX and then refuse it: bfloat16 products die of an illegal instruction.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from hypothesis import settings

from clearhead.generate import player

torch.set_num_threads(int(os.environ.get("CLEARHEAD_TEST_THREADS", "1")))
# However few tokens a test asks for, a tape is made of the steps that are alike.
player.WORTH = 0
# The same examples every run: a red test stays red until the code is right.
settings.register_profile("house", deadline=None, derandomize=True, max_examples=25, database=None)
settings.load_profile("house")
