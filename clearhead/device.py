"""Devices: the name of a device in, the name of one that this machine has out; and what its CPU is good at.

`auto` takes the first of cuda, mps and cpu that is there. torch is imported when a device is chosen.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .errors import InputError, nearest, quoted

DEVICES = ("auto", "cpu", "cuda", "mps", "meta")
# Values of ONEDNN_MAX_CPU_ISA that keep oneDNN, which computes torch's bfloat16 products, from the
# instructions for it. With AVX512_CORE such products still run, slower than in float32.
WITHOUT_BFLOAT16 = (
    "SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI",
)  # fmt: skip
# A product that is large enough for AMX, the matrix units of some Intel processors.
PROBE = "import torch; x = torch.ones(64, 64, dtype=torch.bfloat16); print(float((x @ x)[0, 0]))"


def choose_device(name: str | None) -> str:
    """None is the CPU; a device that this machine does not have is an error."""
    if name is None:
        return "cpu"
    kind, colon, number = str(name).partition(":")
    if kind not in DEVICES:
        hint = "did you mean 'cuda'?" if kind.lower() == "gpu" else nearest(kind, DEVICES)
        raise InputError(f"device is {quoted(str(name))}; {hint}")
    if colon and not number.isdecimal():
        raise InputError(f"device is {quoted(str(name))}; the number of a device is written cuda:0")
    counts = _counts()
    if kind == "auto":
        return next(each for each in ("cuda", "mps", "cpu") if counts[each])
    if kind == "meta":  # shapes without numbers
        return "meta"
    if int(number or 0) >= counts[kind]:
        there = ", ".join(each for each, count in counts.items() if count)
        raise InputError(
            f"device is {name!r}, which this machine does not have; it has {there}: device='auto'"
        )
    return str(name)


def check_threads(count: object) -> int:
    """A number of threads that this process can use; more than there are cores is slow, far more a crash."""
    available = available_threads()
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= available:
        raise InputError(f"threads is {count}; expected 1 to {available} on this machine")
    return count


def available_threads() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _counts() -> dict[str, int]:
    """How many devices of each kind torch can use here."""
    import torch

    return {
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
        "cpu": 1,
    }


@cache
def has_fast_bfloat16() -> bool:
    """Whether products in bfloat16 are faster than in float32 on this CPU: it has AVX512_BF16 or AMX, and
    torch may use them.
    """
    import torch

    limit = _onednn_limit()
    amx = _cpu_has("_is_amx_tile_supported") and (not limit or "AMX" in limit)
    if limit in WITHOUT_BFLOAT16 or not (amx or _cpu_has("_is_avx512_bf16_supported")):
        return False
    operations: Any = torch.ops.mkldnn
    if not hasattr(operations, "_is_mkldnn_bf16_supported"):  # torch was built without oneDNN
        return False
    return bool(operations._is_mkldnn_bf16_supported()) and (not amx or bfloat16_exit_code() == 0)


@cache
def has_slow_mkl() -> bool:
    """Whether torch's float32 products use half of this CPU: MKL takes AVX2 for AVX-512 on processors that
    are not Intel's. oneDNN, where it may, takes AVX-512.
    """
    import torch

    if "Intel" in _cpu_vendor() or _onednn_limit().startswith(("SSE", "AVX2")) or _onednn_limit() == "AVX":
        return False
    has_both = torch.backends.mkl.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]
    return has_both and _cpu_has("_is_avx512_supported")


def bfloat16_exit_code() -> int:
    """The exit code of a second process that computes a product in bfloat16.

    Some virtual machines announce AMX and do not allow it: such a product then ends the process.
    """
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, timeout=120).returncode


def _cpu_vendor() -> str:
    """GenuineIntel or AuthenticAMD; "Intel" where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [f"vendor_id:{platform.processor()}"]  # on Windows it ends with the vendor
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")]
    return names[0] if names else "Intel"


def _cpu_has(question: str) -> bool:
    """The answer of one of torch.cpu's functions, which not every version of torch has."""
    import torch

    ask = getattr(torch.cpu, question, None)
    return ask is not None and bool(ask())


def _onednn_limit() -> str:
    """The instructions that the user limits oneDNN to, such as AVX512_CORE_BF16; "" without a limit."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return "" if limit.upper() in ("ALL", "DEFAULT") else limit.upper()
