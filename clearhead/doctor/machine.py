"""Diagnosis of the machine: findings about versions, processor, memory, fonts and extras, with advice."""

from __future__ import annotations

import locale
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import torch

from ..device import bfloat16_exit_code, has_fast_bfloat16
from ..lens.cost import measure
from ..malloc import available_memory
from .findings import Finding
from .products import check_products

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox", "microsoft-edge", "safari")
LOW_BYTES = 2e9  # bytes; less free memory or disk than this is soon not enough
DISABLE_AMX = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"


def check_machine(folder: Path | None = None) -> list[Finding]:
    """All findings about this machine. `folder` is where runs would be written."""
    folder = Path.cwd() if folder is None else folder
    findings = [
        Finding("python", f"{platform.python_version()} · clearhead {metadata.version('clearhead')}"),
        _torch(),
        _processor(),
        _threads(),
        _bfloat16(),
        check_products(),
        _speed(),
        _memory(),
        _disk(folder),
    ]
    return [*findings, _graphics(), _encoding(), _font(), _browser(), *_extras()]


def _torch() -> Finding:
    names = ("numpy", "tokenizers", "safetensors")
    versions = " · ".join([f"torch {torch.__version__}", *(f"{n} {metadata.version(n)}" for n in names)])
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    if (major, minor) < (2, 6):
        return Finding("libraries", versions, "wrong", "pip install 'torch>=2.6'")
    return Finding("libraries", versions)


def _processor() -> Finding:
    kind = next((line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")), "")
    capability = torch.backends.cpu.get_cpu_capability()
    return Finding(
        "processor", f"{kind or platform.processor() or platform.machine()} · torch uses {capability}"
    )


def cores() -> int:
    """The number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _threads() -> Finding:
    threads, available = torch.get_num_threads(), cores()
    omp_threads = os.environ.get("OMP_NUM_THREADS")
    summary = f"{threads} for {available} processors" + (
        f" (OMP_NUM_THREADS={omp_threads})" if omp_threads else ""
    )
    if threads > available:
        return Finding(
            "threads", summary, "wrong", f"they wait for one another: export OMP_NUM_THREADS={available}"
        )
    if threads < available:
        remedy = "unset OMP_NUM_THREADS" if omp_threads else f"export OMP_NUM_THREADS={available}"
        return Finding("threads", summary, "note", f"some processors are idle: {remedy}")
    return Finding("threads", summary)


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def _bfloat16() -> Finding:
    """Some virtual machines announce AMX but do not allow it; bfloat16 products then kill the process."""
    if any("amx_bf16" in line for line in _cpuinfo()) and (code := bfloat16_exit_code()):
        problem = f"products end the program (code {code}): the processor announces AMX and refuses it"
        return Finding("bfloat16", problem, "wrong", f"export {DISABLE_AMX}")
    if has_fast_bfloat16():
        return Finding("bfloat16", "faster than float32 here: train with --precision bfloat16")
    return Finding("bfloat16", "no instructions for it (AVX512_BF16 or AMX), so not faster than float32 here")


def _speed() -> Finding:
    speed = measure()
    summary = (
        f"{speed.flops / 1e9:.0f} GFLOP/s in matrix products · {speed.bandwidth / 1e9:.1f} GB/s of memory"
    )
    if speed.flops < 5e9 * torch.get_num_threads():
        return Finding("speed", summary, "note", "slow for a processor; is something else running?")
    return Finding("speed", summary)


def _memory() -> Finding:
    page = os.sysconf("SC_PAGE_SIZE")
    free, total = available_memory() or 0, os.sysconf("SC_PHYS_PAGES") * page
    summary = f"{free / 1e9:.1f} GB of {total / 1e9:.1f} GB free"
    if free < LOW_BYTES:
        return Finding("memory", summary, "note", "close other programs, or train with smaller batches")
    return Finding("memory", summary)


def _disk(folder: Path) -> Finding:
    usage = shutil.disk_usage(folder)
    summary = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB free in {folder}"
    if not os.access(folder, os.W_OK):
        return Finding("disk", f"{folder} cannot be written to", "wrong", "choose another folder with --out")
    if usage.free < LOW_BYTES:
        return Finding(
            "disk", summary, "note", "a run keeps three checkpoints of three times the model; free some space"
        )
    return Finding("disk", summary)


def _graphics() -> Finding:
    if not torch.cuda.is_available():
        return Finding("graphics", "no CUDA device; everything runs on the processor")
    return Finding(
        "graphics", ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    )


def _encoding() -> Finding:
    name = (getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(do_setlocale=False)).lower()
    if name.replace("-", "") != "utf8":
        return Finding("letters", name, "wrong", "Chinese cannot be printed: export PYTHONUTF8=1")
    return Finding("letters", name)


def _font() -> Finding:
    from ..lens.pictures import chinese_font  # matplotlib takes a moment, and only this needs it

    font = chinese_font()
    if font is None:
        remedy = "apt install fonts-noto-cjk, or any font with Chinese characters"
        return Finding("font", "no font with Chinese characters: pictures would show boxes", "note", remedy)
    return Finding("font", f"{font}, for Chinese in pictures")


def _browser() -> Finding:
    browsers = [name for name in BROWSERS if shutil.which(name)]
    if browsers or sys.platform in ("darwin", "win32"):
        return Finding("browser", browsers[0] if browsers else "the system's own")
    remedy = "open the studio's address from another machine, or apt install chromium"
    return Finding("browser", "none found", "note", remedy)


def _extras() -> Iterator[Finding]:
    """The optional dependencies of pyproject.toml, and whether they are installed."""
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("clearhead") or []:
        name, _, condition = line.partition(";")
        if "extra ==" in condition:
            extra = condition.partition("extra ==")[2].strip().strip("'\"")
            extras.setdefault(extra, []).append(_package_name(name))
    for extra, names in sorted(extras.items()):
        missing = [name for name in names if not _installed(name)]
        if missing:
            remedy = f"only if you need it: pip install 'clearhead[{extra}]'"
            yield Finding(f"extra {extra}", f"not installed: {', '.join(missing)}", "note", remedy)
        else:
            yield Finding(f"extra {extra}", ", ".join(names))


def _package_name(requirement: str) -> str:
    """The name of a package without its version."""
    for sign in "<>=!~[( ":
        requirement = requirement.partition(sign)[0]
    return requirement.strip()


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
