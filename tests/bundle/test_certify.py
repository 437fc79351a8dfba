"""The certificate passes on what is right, and fails on what is not."""

from pathlib import Path
from typing import Any

import pytest
from references import REFERENCES
from safetensors.torch import load_file, save_file

from clearhead.bundle import Bundle, load
from clearhead.certify import certificate as certificate_room
from clearhead.certify import certify, reference
from clearhead.families import FAMILIES

# Transformer-XL is gone from transformers (its golden tensors are in tests/golden), and Reformer's hashes are
# not continuous: float32 and float64 may put a token into different buckets, so no limit between them holds.
LEFT_OUT = {"transfo-xl", "reformer"}
PLAIN = [f"{name}/tokens/plain" for name in FAMILIES if name not in LEFT_OUT]


@pytest.mark.parametrize("name", PLAIN)
def test_every_family_is_certified(name: str, tmp_path: Path) -> None:
    REFERENCES[name].files(tmp_path)
    certificate = certify(tmp_path)
    assert certificate.passed, [row for row in certificate.rows if not row.passed]
    assert certificate.reference.startswith("transformers ")
    checks = {row.what for row in certificate.rows}
    assert {"answer", "padded and not", "alone and in a batch", "save and load"} <= checks
    causal = FAMILIES[name.split("/")[0]].mode != "bidirectional"
    assert ({"cache on and off", "prompt in chunks"} <= checks) == causal


def test_another_number_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours (here: scores scaled by 0.3) shows as the reference being far from our exact run."""
    REFERENCES["gpt2/tokens/plain"].files(tmp_path)

    def wrong(folder: Path, **more: Any) -> Bundle:
        return load(folder, **more | {"edit": {"Attention.scale": 0.3}})

    monkeypatch.setattr(certificate_room, "load", wrong)
    certificate = certify(tmp_path)
    failed = {row.check for row in certificate.rows if not row.passed}
    assert "reference, float32 against float64" in failed
    assert "ours, float32 against float64" not in failed


def test_without_transformers_the_invariances_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    REFERENCES["gpt2/tokens/plain"].files(tmp_path)
    monkeypatch.setattr(reference.importlib.util, "find_spec", lambda name: None)
    certificate = certify(tmp_path)
    assert "not installed: invariances only" in certificate.reference
    assert {row.check for row in certificate.rows} == {"invariance"} and len(certificate.rows) == 5


def test_a_nan_fails(tmp_path: Path) -> None:
    REFERENCES["gpt2/tokens/plain"].files(tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    state["transformer.ln_f.weight"][0] = float("nan")
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert not certify(tmp_path).passed
