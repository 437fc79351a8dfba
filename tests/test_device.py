"""One function chooses the device, for loading and for training."""

import subprocess
import sys

import pytest
import torch

from clearhead.device import choose_device
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
