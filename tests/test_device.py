"""One function chooses the device, for loading and for training; others know what the CPU is good at."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from clearhead import device
from clearhead.device import choose_device, has_fast_bfloat16, has_slow_mkl
from clearhead.errors import InputError


def machine(monkeypatch: pytest.MonkeyPatch, cuda: int = 0, mps: bool = False) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(2, True, "cuda"), (0, True, "mps"), (0, False, "cpu")]
)
def test_auto_takes_cuda_then_mps_then_the_cpu(
    cuda: int, mps: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, cuda, mps)
    assert choose_device("auto") == expected


def test_a_device_that_is_there_is_taken_as_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=2, mps=True)
    for name in ("cpu", "cuda", "cuda:0", "cuda:1", "mps", "meta"):
        assert choose_device(name) == name
        assert torch.device(choose_device(name)).type == name.partition(":")[0]
    assert choose_device(None) == "cpu"  # as torch: nothing moves unless it is asked for


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda", "it has cpu"),
        ("cuda:1", "it has cpu"),
        ("mps", "it has cpu"),
        ("cpu:3", "it has cpu"),
        ("gpu", "device is 'gpu'; "),
        ("cdua", "did you mean 'cuda'?"),
        ("cuda:first", "is written cuda:0"),
        ("cuda:", "is written cuda:0"),
        ("", "device is ''"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(
    name: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch)
    with pytest.raises(InputError) as error:
        choose_device(name)
    assert expected in str(error.value)


def test_the_machine_says_which_devices_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, cuda=1)
    with pytest.raises(InputError, match="it has cuda, cpu"):
        choose_device("cuda:1")


def test_importing_the_module_imports_no_torch() -> None:
    program = "import sys, clearhead.device; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The answers are kept for the process; here every test has its own machine, without a limit."""
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    for question in (has_fast_bfloat16, has_slow_mkl):
        question.cache_clear()
    yield
    for question in (has_fast_bfloat16, has_slow_mkl):
        question.cache_clear()


def cpu(monkeypatch: pytest.MonkeyPatch, *has: str, onednn: bool = True, probe: int = 0) -> None:
    """A CPU with these instructions; whether oneDNN knows bfloat16, and how a product in it ends."""
    for name in ("amx_tile", "avx512_bf16", "avx512"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in has, raising=False)
    operations = type("Operations", (), {"_is_mkldnn_bf16_supported": staticmethod(lambda: onednn)})
    monkeypatch.setattr(torch.ops, "mkldnn", operations)
    monkeypatch.setattr(device, "bfloat16_exit_code", lambda: probe)


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize(
    ("has", "limit", "onednn", "probe", "expected"),
    [
        (("avx512_bf16",), "", True, 0, True),
        (("amx_tile", "avx512_bf16"), "", True, 0, True),
        (("amx_tile",), "AVX512_CORE_AMX", True, 0, True),
        (("avx512_bf16",), "avx512_core_bf16", True, 0, True),
        (("avx512_bf16",), "ALL", True, 0, True),
        (("avx512",), "", True, 0, False),
        ((), "", True, 0, False),
        (("avx512_bf16",), "", False, 0, False),  # oneDNN says no
        (("avx512_bf16",), "AVX2", True, 0, False),  # the user says no
        (("avx512_bf16",), "AVX512_CORE", True, 0, False),
        (("amx_tile", "avx512_bf16"), "", True, -4, False),  # announced and refused: it would end the run
        (("amx_tile", "avx512_bf16"), "AVX512_CORE_BF16", True, -4, True),  # and with the remedy
    ],
)
def test_which_cpu_is_fast_in_bfloat16(
    has: tuple[str, ...],
    limit: str,
    onednn: bool,
    probe: int,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu(monkeypatch, *has, onednn=onednn, probe=probe)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_fast_bfloat16() is expected


@pytest.mark.usefixtures("asked_anew")
def test_an_older_torch_that_cannot_say_is_not_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported", "_is_avx512_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert not has_fast_bfloat16() and not has_slow_mkl()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.parametrize(
    ("vendor", "has", "limit", "expected"),
    [
        ("AuthenticAMD", ("avx512",), "", True),
        ("AuthenticAMD", ("avx512",), "AVX512_CORE", True),
        ("AuthenticAMD", ("avx512",), "AVX2", False),
        ("AuthenticAMD", (), "", False),
        ("GenuineIntel", ("avx512",), "", False),
    ],
)
def test_where_mkl_leaves_avx512_unused(
    vendor: str, has: tuple[str, ...], limit: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu(monkeypatch, *has)
    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", None, raising=False)
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(device, "_cpu_vendor", lambda: vendor)
    if limit:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert has_slow_mkl() is expected
