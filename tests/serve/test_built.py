"""The built page: small, of our own sources, and free of anything from elsewhere."""

import filecmp
import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
STATIC, STUDIO = ROOT / "clearhead" / "serve" / "static", ROOT / "studio"
needs_node = pytest.mark.skipif(
    shutil.which("npx") is None or not (STUDIO / "node_modules").is_dir(),
    reason="the page's tools are missing: apt install npm, then make studio/node_modules in studio/",
)


def test_the_page_is_small() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in STATIC.iterdir()}
    assert {"index.html", "studio.js", "index.css", "icon.svg"} == set(sizes)
    assert sum(sizes.values()) <= 200_000, sizes


def test_the_page_holds_no_inline_script_and_names_no_other_place() -> None:
    html = (STATIC / "index.html").read_text()
    assert re.findall(r"<script[^>]*>([^<]+)</script>", html) == []
    assert "style=" not in html and "<style" not in html
    names = {
        "http://www.w3.org",
        "https://svelte.dev",
    }  # names of standards, and of error pages; never fetched
    for path in STATIC.iterdir():
        found = set(re.findall(r"https?://[\w.]+", path.read_text()))
        assert found <= names, (path.name, found)


@needs_node
def test_it_is_what_the_sources_build(tmp_path: Path) -> None:
    _run("vite", "build", "--outDir", str(tmp_path / "built"), "--emptyOutDir")
    compared = filecmp.dircmp(tmp_path / "built", STATIC)
    assert not (compared.left_only or compared.right_only)
    _, different, broken = filecmp.cmpfiles(tmp_path / "built", STATIC, compared.common_files, shallow=False)
    assert not different and not broken, f"{different}: run `make page` and commit what it builds"


@needs_node
def test_its_logic() -> None:
    said = _run("vitest", "run", "--reporter=dot")
    assert re.search(r"Tests .*\d+ passed", said) and "failed" not in said


@needs_node
def test_its_types() -> None:
    assert "0 errors and 0 warnings" in _run("svelte-check", "--tsconfig", "./tsconfig.json")


def _run(*words: str) -> str:
    command = ["npx", "--no-install", *words]
    done = subprocess.run(command, cwd=STUDIO, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
