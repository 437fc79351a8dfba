"""What the studio's tests stand on: a trained run with its checkpoints, a server in a thread, a browser."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trained
from served import Served, serving

import clearhead as ch
from clearhead.serve.registry import EXAMPLE
from clearhead.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from playwright import sync_api as playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAYLOAD = "<img src=x onerror=alert(1)>"
Open = Callable[..., "playwright.Page"]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as training leaves it: the built-in translator, and two checkpoints beside it."""
    folder = tmp_path_factory.mktemp("made") / "demo"
    shutil.copytree(EXAMPLE / "translator", folder)
    for step in (300, 600):
        shutil.copytree(EXAMPLE / "translator", folder / f"checkpoint-{step:06d}")
    return folder


@pytest.fixture(scope="module")
def served(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio whose home has a copy of the demo run, served as `clearhead studio` serves it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(demo, home / "runs" / "demo")
    with serving(home) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="journeys need playwright: pip install it")
    if CHROMIUM is None:
        pytest.skip("journeys need Chromium: apt install chromium")
    with sync_api.sync_playwright() as engine:
        made = engine.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking"]
        )
        yield made
        made.close()


@pytest.fixture(scope="module")
def wide(served: Served) -> str:
    """A model of 12 by 12 heads that reads 512 tokens, and whose vocabulary has a word that is markup."""
    folder = served.home / "wide"
    sizes = {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 64}
    bundle = ch.build("bert", **sizes, vocab_size=320, max_position_embeddings=512)
    trained.write(folder, "words")
    path = folder / "tokenizer.json"
    engine = trained.Tokenizer.from_file(str(path))
    engine.add_tokens([PAYLOAD])
    engine.save(str(path))
    bundle.tokenizer = Tokenizer.read(folder)
    ch.save(bundle, folder)
    served.studio.registry.scan()
    return served.id("wide")


@pytest.fixture
def open_page(browser: "playwright.Browser", served: Served) -> Iterator[Open]:
    """Opens a screen; afterwards the console shows no error, and nobody else was asked for anything.

    A test that means a request to fail says so with `open_page.refusals_expected = True`: the browser
    reports failed requests itself, at a time of its own.
    """
    told: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_(
        where: str, language: str = "en", theme: str = "light", url: str = served.url, **more: object
    ) -> "playwright.Page":
        context = browser.new_context(viewport={"width": 1360, "height": 900}, accept_downloads=True, **more)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda m: told.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: told.append(str(e)))
        page.on("dialog", lambda d: told.append(f"dialog {d.message}"))
        page.on("request", lambda r: asked.append(r.url))
        kept = {"clearhead.language": language, "clearhead.theme": theme}
        page.add_init_script(
            "".join(
                f"localStorage.setItem('{k}', localStorage.getItem('{k}') ?? '{v}');" for k, v in kept.items()
            )
        )
        page.goto(f"{url}/#/{where}")
        return page

    open_.refusals_expected = False  # type: ignore[attr-defined]
    yield open_
    for context in contexts:
        context.close()
    if open_.refusals_expected:  # type: ignore[attr-defined]
        told = [message for message in told if not message.startswith("Failed to load resource")]
    assert not told, told
    assert asked and all(url.startswith(("http://127.0.0.1:", "blob:", "data:")) for url in asked)
