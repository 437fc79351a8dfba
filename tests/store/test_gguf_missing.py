"""Without the `gguf` library: one line that says how to get it."""

import sys
from pathlib import Path

import pytest

from clearhead.errors import LoadError
from clearhead.store.gguf import read_gguf


def test_a_missing_library_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(LoadError, match=r"pip install 'clearhead\[gguf\]'$"):
        read_gguf(tmp_path / "m.gguf")
