"""The page in a real browser: what people do, done; nothing asked of another server, and no error told."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from safetensors.torch import load as tensors
from served import Served, serving

playwright = pytest.importorskip(
    "playwright.sync_api", reason="journeys need playwright: pip install playwright"
)

SENTENCE = "these cats see two dogs today"
PAYLOAD = "<img src=x onerror=alert(1)>"
Open = Callable[..., "playwright.Page"]


def read(page: "playwright.Page", sentence: str = SENTENCE) -> None:
    """Type a sentence into Attention and wait until it was read."""
    page.locator("textarea").first.fill(sentence)
    with page.expect_response("**/api/traces") as answer:
        page.get_by_role("button", name=re.compile("Look inside|查看内部")).click()
    assert answer.value.ok, answer.value.text()
    page.locator(".stage canvas").first.wait_for()


def test_open_the_run_and_see_cats_on_their_chinese_word(open_page: Open, served: Served) -> None:
    page = open_page("home")
    page.locator("li", has=page.get_by_role("heading", name="demo", exact=True)).get_by_role(
        "button", name="Look inside"
    ).click()
    page.locator(".stage canvas").first.wait_for()
    read(page)
    playwright.expect(page.locator(".answer")).to_contain_text("猫")
    page.get_by_role("button", name="Alignment").click()
    links = page.locator("canvas.free").get_attribute("aria-label")
    assert links is not None and "猫 → cats" in links


def test_another_head_and_the_value_under_the_pointer_is_the_servers(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    page.locator(".stage canvas").first.wait_for()
    with page.expect_response("**/api/traces") as answer:
        read(page)
    trace = answer.value.json()["id"]
    page.locator(".bar select").nth(0).select_option("1")
    page.locator(".bar select").nth(1).select_option("3")
    page.get_by_role("heading", name="Head L1 · H3").wait_for()
    stage = page.locator(".stage").first
    stage.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    value = page.get_by_test_id("value")
    playwright.expect(value).not_to_contain_text("≈")
    told = float(value.inner_text().split()[-1])
    row = tensors(httpx.get(f"{served.url}/api/traces/{trace}/row?kind=cross&layer=1&head=3&q=1").content)[
        "row"
    ]
    assert told == pytest.approx(float(row[1]), abs=6e-4, rel=6e-3)  # three digits
    box = page.locator(".stage canvas").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.7)
    playwright.expect(value).to_contain_text(re.compile(r"→ \S+\s+[\d.]"))
    playwright.expect(value).not_to_contain_text("≈")
    query, _, key, told_again = value.inner_text().split()
    seen = answer.value.json()
    q, k = (
        [token["label"] for token in seen[side]].index(word)
        for side, word in (("said", query), ("source", key))
    )
    where = f"{served.url}/api/traces/{trace}/row?kind=cross&layer=1&head=3&q={q}"
    weight = float(tensors(httpx.get(where).content)["row"][k])
    assert float(told_again.replace("−", "-")) == pytest.approx(weight, abs=6e-4, rel=6e-3)


def test_stepping_through_generation_shows_one_row_more_each_time(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    page.locator(".stage canvas").first.wait_for()
    steps = page.get_by_test_id("step")
    whole = int(steps.inner_text().split("/")[1])
    page.get_by_role("button", name="Back", exact=True).click()
    playwright.expect(steps).to_have_text(f"{whole - 1} / {whole}")
    label = page.locator(".stage canvas").first.get_attribute("aria-label")
    assert label is not None and f"{whole - 1} rows" in label
    page.get_by_role("button", name="Next", exact=True).click()
    playwright.expect(page.locator(".stage canvas").first).to_have_attribute(
        "aria-label", re.compile(f"{whole} rows")
    )


def test_force_a_token_and_open_the_tree(open_page: Open, served: Served) -> None:
    page = open_page(f"generate/{served.id('demo')}")
    page.locator("textarea").fill(SENTENCE)
    page.get_by_role("button", name="Generate", exact=True).click()
    said = page.get_by_test_id("said")
    playwright.expect(page.get_by_text("ended with the end token")).to_be_visible()
    before = said.inner_text()
    assert "猫" in before
    said.get_by_role("button").nth(2).click()
    page.get_by_role("group", name="Alternatives").get_by_role("button").nth(1).click()
    playwright.expect(said.locator(".forced")).to_have_count(
        1
    )  # the one that was chosen, not those before it
    playwright.expect(page.get_by_text("ended with the end token")).to_be_visible()
    assert said.inner_text() != before
    page.get_by_role("button", name="Beam search").click()
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_text("Search tree").wait_for()
    assert page.locator("path.pruned").count() > 5 and page.locator("path.best").count() > 5
    answers = page.locator(".answers li")
    assert answers.count() == 4
    second = answers.nth(1).locator("span").nth(1).inner_text()
    answers.nth(1).get_by_role("button", name="See its attention").click()
    playwright.expect(page.locator(".answer")).to_contain_text(second)


def test_train_from_the_page_and_watch_it(open_page: Open, served: Served) -> None:
    page = open_page("train")
    page.get_by_role("button", name="translate-en-zh").click()
    page.get_by_label("Name of the run").fill("from the page")
    page.get_by_label("Steps", exact=True).fill("45")
    page.get_by_text("More settings").click()
    page.get_by_label("More settings").fill(
        "model.d_model=32\nmodel.encoder_ffn_dim=32\nmodel.decoder_ffn_dim=32\ndata.tokens=400"
    )
    page.get_by_role("button", name="Start").click()
    playwright.expect(page.get_by_test_id("run-step")).to_have_text("45 / 45", timeout=90_000)
    playwright.expect(page.get_by_test_id("run-status")).to_have_text("ready", timeout=30_000)
    page.get_by_text("Samples during training").wait_for()
    assert (served.home / "runs" / "from-the-page" / "model.safetensors").is_file()
    page.get_by_role("button", name="See its alignment").first.click()
    page.locator(".stage canvas").first.wait_for()


def test_the_language_changes_in_place(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    page.locator(".stage canvas").first.wait_for()
    read(page)
    page.locator(".bar select").nth(0).select_option("0")
    page.get_by_role("button", name="中文").click()
    page.get_by_role("heading", name="注意力").wait_for()
    assert page.locator("html").get_attribute("lang") == "zh-CN"
    assert page.locator("textarea").first.input_value() == SENTENCE
    assert page.locator(".bar select").nth(0).input_value() == "0"
    playwright.expect(page.locator(".answer")).to_contain_text("猫")


def test_files_to_keep(open_page: Open, served: Served, tmp_path: Path) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    page.locator(".stage canvas").first.wait_for()
    read(page)
    for ending, has in (
        ("SVG", b">cats</text>"),
        ("PNG", b"PNG"),
        ("CSV", b"cats"),
        ("HTML", b"<html"),
        ("safetensors", b"{"),
    ):
        with page.expect_download() as given:
            page.get_by_role("group", name="Save as").get_by_role("button", name=ending, exact=True).click()
        path = tmp_path / given.value.suggested_filename
        given.value.save_as(path)
        content = path.read_bytes()
        assert path.suffix == f".{ending.lower()}" and has in content[:2_000_000], ending
        if ending == "HTML":
            assert (
                b"http://" not in content.replace(b"http://www.w3.org", b"") and b"cdn" not in content.lower()
            )


def test_keys_alone_are_enough(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    page.locator(".stage canvas").first.wait_for()
    page.locator("textarea").first.focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("two birds see the horse")
    with page.expect_response("**/api/traces"):
        page.keyboard.press("Enter")
    playwright.expect(page.locator(".answer")).to_contain_text("鸟")
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "document.activeElement.className + '|' + document.activeElement.textContent.slice(0, 20)"
            )
        )
        if page.evaluate("document.activeElement.classList.contains('stage')"):
            break
    else:
        raise AssertionError(f"the heat map cannot be reached by Tab: {reached}")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.get_by_role("columnheader", name="Attends to").wait_for()
    heading = page.get_by_role("heading", name=re.compile("Head L"))
    before = heading.inner_text()
    page.keyboard.press(".")
    playwright.expect(heading).not_to_have_text(before)
    page.keyboard.press("Escape")
    playwright.expect(page.get_by_role("columnheader", name="Attends to")).to_have_count(0)


def test_512_tokens_stay_within_the_budgets(open_page: Open, served: Served, wide: str) -> None:
    page = open_page(f"attention/{wide}")
    page.locator(".stage canvas").first.wait_for()
    with page.expect_response("**/overview*") as overview:
        read(page, "the quick brown fox jumps over the lazy dog . " * 51)
    assert int(overview.value.headers["content-length"]) <= 600_000
    page.wait_for_timeout(300)
    for mode in ("Heat map", "Lines", "Token highlighting"):
        page.get_by_role("button", name=mode).click()
        page.wait_for_timeout(150)
        assert page.evaluate("document.querySelectorAll('*').length") <= 1500, mode
    page.get_by_role("button", name="Heat map").click()
    page.locator(".stage").first.focus()
    times = []
    for _ in range(12):
        page.keyboard.press("ArrowDown")
        times.append(float(page.locator(".stage canvas").first.get_attribute("data-ms") or "inf"))
    assert sorted(times)[len(times) // 2] <= 4, times  # script time of a redraw, not frames
    page.get_by_text("Logit lens").click()
    page.wait_for_timeout(400)
    assert page.evaluate("document.querySelectorAll('*').length") <= 1500


def test_a_token_that_is_markup_is_shown_as_text(open_page: Open, served: Served, wide: str) -> None:
    page = open_page(f"attention/{wide}")
    page.locator(".stage canvas").first.wait_for()
    read(page, f"the fox {PAYLOAD} jumps")
    page.get_by_role("button", name="Token highlighting").click()
    playwright.expect(page.locator("p.text").last).to_contain_text(PAYLOAD)
    assert page.locator("img[src='x']").count() == 0
    page.get_by_role("button", name="Lines").click()
    page.evaluate("location.hash = '#/steps/' + location.hash.split('/')[2]")
    page.get_by_label("Text", exact=True).fill(PAYLOAD)
    page.get_by_role("button", name="Run", exact=True).click()
    playwright.expect(page.locator(".chip.token", has_text="onerror")).to_be_visible()
    assert page.locator("img[src='x']").count() == 0


@pytest.mark.parametrize(
    "typed, said", [("/no/such/folder", "no folder"), ("runs", "neither a model nor a run")]
)
def test_a_folder_that_is_no_model_is_said_and_the_page_goes_on(
    open_page: Open, served: Served, typed: str, said: str
) -> None:
    page = open_page("home")
    page.get_by_label("Path or Hub id").fill(typed)
    page.get_by_role("button", name="Open", exact=True).click()
    playwright.expect(page.get_by_role("alert")).to_contain_text(said)
    page.get_by_role("button", name="Close").click()
    page.get_by_label("Path or Hub id").fill("runs/demo")
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".stage canvas").first.wait_for()
    open_page.refusals_expected = True  # type: ignore[attr-defined]  # the browser tells of the 400 itself


def test_a_text_beyond_the_window_is_said(open_page: Open, served: Served, wide: str) -> None:
    page = open_page(f"attention/{wide}")
    page.locator(".stage canvas").first.wait_for()
    page.locator("textarea").first.fill("fox " * 700)
    page.get_by_role("button", name="Look inside").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("at most 512")
    read(page, "the fox")
    playwright.expect(page.get_by_role("alert")).to_be_empty()
    open_page.refusals_expected = True  # type: ignore[attr-defined]


def test_the_server_is_restarted_under_the_page(open_page: Open, demo: Path, tmp_path: Path) -> None:
    shutil.copytree(demo, tmp_path / "runs" / "demo")
    with serving(tmp_path) as first:
        page = open_page(f"attention/{first.id('demo')}", url=first.url)
        page.locator(".stage canvas").first.wait_for()
        port = int(first.url.rsplit(":", 1)[1])
    page.locator("textarea").first.fill("two birds see the horse")
    page.get_by_role("button", name="Look inside").click()
    playwright.expect(page.get_by_role("alert")).to_contain_text("does not respond")
    with serving(tmp_path, port=port):
        # The old trace is gone with the old server: choosing another head reads the text again.
        heads = page.locator(".bar select").nth(1)
        other = "2" if heads.input_value() == "1" else "1"
        heads.select_option(other)
        playwright.expect(page.get_by_role("alert")).to_be_empty()
        page.get_by_role("heading", name=re.compile(f"H{other}")).wait_for()
        playwright.expect(page.locator(".answer")).to_contain_text("鸟")
    open_page.refusals_expected = True  # type: ignore[attr-defined]


SCREENS = ["home", "attention/DEMO", "generate/DEMO", "steps/DEMO", "train", "compare/DEMO", "families"]


@pytest.mark.parametrize("language, theme", [("en", "light"), ("zh", "dark")])
def test_every_screen_is_accessible_and_fits_a_small_one(
    open_page: Open, served: Served, language: str, theme: str
) -> None:
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python"
    )
    page = open_page("home", language, theme, bypass_csp=True)  # axe is a script from outside
    found = {}
    for screen in SCREENS:
        page.evaluate(f"location.hash = '#/{screen.replace('DEMO', served.id('demo'))}'")
        page.wait_for_timeout(250)
        page.wait_for_load_state("networkidle")
        if screen.startswith("generate"):
            page.locator("button.main").click()
            page.wait_for_timeout(600)
        result = axe.Axe().run(page).response
        found[screen] = [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in result["violations"]]
        for width in (1024, 390):
            page.set_viewport_size({"width": width, "height": 844})
            page.wait_for_timeout(60)
            over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert over <= 0, (screen, width, over)
        page.set_viewport_size({"width": 1360, "height": 900})
    assert not any(found.values()), json.dumps(found, indent=1)


def test_nothing_in_the_sources_writes_markup() -> None:
    source = Path(__file__).parent.parent.parent / "studio" / "src"
    banned = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\{@html|eval\(|new Function|\son\w+=\""
    )
    for path in [*source.rglob("*.svelte"), *source.rglob("*.ts")]:
        if not path.name.endswith(".test.ts"):
            assert not banned.search(path.read_text()), path


def test_the_test_for_errors_can_fail(browser: "playwright.Browser", served: Served) -> None:
    """The watch over requests and errors sees them: a page that breaks the rules is caught."""
    page = browser.new_page()
    told: list[str] = []
    page.on("console", lambda m: told.append(m.text) if m.type == "error" else None)
    page.goto(f"{served.url}/#/home")
    made = "document.body.appendChild(document.createElement('script'))"
    with pytest.raises(playwright.Error, match="TrustedScript"):
        page.evaluate(f"() => {{ {made}.textContent = 'window.ran = 1' }}")
    assert page.evaluate("window.ran") is None
    assert any("TrustedScript" in line for line in told)
    page.close()
