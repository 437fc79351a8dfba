"""What the page shows belongs together: name, picture, text and address are always of one thing."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import Served, serving

playwright = pytest.importorskip(
    "playwright.sync_api", reason="journeys need playwright: pip install playwright"
)
expect = playwright.expect
Open = Callable[..., "playwright.Page"]
SENTENCE = "these cats see two dogs today"


def refusals_expected(open_page: Open) -> None:
    """The browser reports failed requests itself; those are meant here."""
    open_page.refusals_expected = True  # type: ignore[attr-defined]


def drawn(page: "playwright.Page") -> None:
    page.locator(".stage canvas").first.wait_for()


def slow(page: "playwright.Page", pattern: str, seconds: float) -> None:
    """Answers to these requests come late."""

    def wait(route: Any) -> None:
        page.wait_for_timeout(1000 * seconds)
        route.continue_()

    page.route(re.compile(pattern), wait)


def box(page: "playwright.Page", name: str) -> "playwright.Locator":
    return page.get_by_role("combobox", name=name, exact=True)


def model(page: "playwright.Page") -> str:
    return box(page, "Model").input_value()


def test_back_brings_back_the_picture_and_not_only_the_name(
    open_page: Open, served: Served, wide: str
) -> None:
    demo = served.id("demo")
    page = open_page(f"attention/{demo}")
    drawn(page)
    text = page.locator("textarea").first.input_value()
    box(page, "Model").select_option(wide)
    expect(box(page, "Layer").locator("option")).to_have_count(12)
    page.go_back()
    expect(box(page, "Layer").locator("option")).to_have_count(2)
    assert model(page) == demo and page.locator("textarea").first.input_value() == text
    expect(page.get_by_test_id("command")).to_contain_text("runs/demo")
    expect(page.locator(".answer")).to_be_visible()
    page.evaluate(f"location.hash = '#/attention/{wide}'")  # as an edited address
    expect(box(page, "Layer").locator("option")).to_have_count(12)
    expect(page.locator(".answer")).to_have_count(0)


def test_nothing_of_another_model_is_in_sight_while_one_is_opened(
    open_page: Open, served: Served, wide: str
) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    drawn(page)
    page.route(re.compile("/api/traces$"), lambda route: route.abort())  # it never comes
    box(page, "Model").select_option(wide)
    expect(page.locator(".stage canvas")).to_have_count(0)
    expect(page.locator(".answer")).to_have_count(0)
    refusals_expected(open_page)


def test_step_by_step_follows_the_address(open_page: Open, served: Served, wide: str) -> None:
    page = open_page(f"steps/{served.id('demo')}")
    expect(page.get_by_text("Encoder reads")).to_be_visible()
    box(page, "Model").select_option(wide)
    expect(page.get_by_text("Encoder reads")).to_have_count(0)
    expect(box(page, "Layer").locator("option")).to_have_count(12)
    page.go_back()
    expect(page.get_by_text("Encoder reads")).to_be_visible()
    assert model(page) == served.id("demo")
    expect(box(page, "Layer").locator("option")).to_have_count(2)


def test_a_picture_is_named_by_the_head_that_is_drawn(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}?kind=cross&layer=1&head=2")
    drawn(page)
    heading = page.get_by_role("heading", name=re.compile("Head L"))
    expect(heading).to_have_text("Head L1 · H2")
    save = page.get_by_role("group", name="Save as").get_by_role("button", name="SVG")
    expect(save).to_be_enabled()
    slow(page, r"head\?.*head=0", 1.5)
    box(page, "Head").select_option("0")
    assert heading.inner_text() == "Head L1 · H2" and box(page, "Head").input_value() == "2"
    expect(page.get_by_text("Loading L1 · H0")).to_be_visible()
    expect(save).to_be_disabled()
    expect(page.locator(".picture.stale")).to_have_count(1)
    expect(heading).to_have_text("Head L1 · H0")
    expect(save).to_be_enabled()
    with page.expect_download() as given:
        save.click()
    assert given.value.suggested_filename == "demo-cross-L1-H0.svg"
    assert "demo · Cross · L1 · H0" in Path(given.value.path()).read_text()


def test_what_is_saved_is_the_view_on_the_screen(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}?text={SENTENCE}&kind=cross&mode=align", theme="dark")
    page.locator("canvas.free").wait_for()
    with page.expect_download() as given:
        page.get_by_role("group", name="Save as").get_by_role("button", name="SVG").click()
    svg = Path(given.value.path()).read_text()
    assert "<path" in svg and svg.count("<rect") == 1 and "#1a1e24" in svg and SENTENCE in svg


def test_a_model_of_another_vocabulary_is_not_fed_the_ids(open_page: Open, served: Served, wide: str) -> None:
    asked: list[dict[str, Any]] = []
    page = open_page("home")
    page.on("request", lambda r: asked.append(r.post_data_json) if r.url.endswith("/api/traces") else None)
    demo = served.id("demo")
    page.evaluate(f"location.hash = '#/compare/{demo}?a={wide}&b={demo}&text=old+dogs'")
    expect(page.get_by_role("region", name="B", exact=True).locator("canvas").first).to_be_visible()
    assert [a["model"] for a in asked] == [demo, wide] and "target_ids" not in asked[1]
    expect(page.get_by_text("So that the rows are the same tokens")).to_have_count(0)
    box(page, "A").select_option(demo)
    expect(page.get_by_text("So that the rows are the same tokens")).to_be_visible()
    assert asked[-1]["target_ids"] and asked[-1]["vocabulary"]


def test_an_error_stays_until_it_is_closed_or_mended(open_page: Open, served: Served) -> None:
    page = open_page("home")
    page.get_by_label("Path or Hub id").fill("/no/such/folder")
    page.get_by_role("button", name="Open", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("no folder")
    with page.expect_response("**/api/home"):
        pass
    with page.expect_response("**/api/home"):  # the page asks for news by itself, and is answered
        pass
    page.wait_for_timeout(200)
    expect(alert).to_contain_text("no folder")
    page.get_by_role("button", name="Close").click()
    expect(alert).to_be_empty()
    refusals_expected(open_page)


@pytest.mark.parametrize("screen", ["attention", "generate", "steps"])
def test_a_link_to_nothing_says_so(open_page: Open, served: Served, screen: str) -> None:
    page = open_page(f"{screen}/nothing-123")
    expect(page.get_by_role("alert")).to_contain_text("nothing-123")
    page.wait_for_timeout(600)
    expect(page.get_by_role("alert")).to_contain_text("nothing-123")
    box(page, "Model").select_option(served.id("demo"))
    expect(page.get_by_role("alert")).to_be_empty()
    refusals_expected(open_page)


def test_half_an_escape_in_the_address_leads_home(open_page: Open, served: Served) -> None:
    page = open_page("attention/%E0%A4%A")
    expect(page.get_by_role("heading", name="See inside a Transformer")).to_be_visible()


@pytest.mark.parametrize("text", [SENTENCE, f"{SENTENCE} " * 90])
def test_reloading_and_sharing_keep_what_is_shown(open_page: Open, served: Served, text: str) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    drawn(page)
    page.locator("textarea").first.fill(text)
    with page.expect_response("**/api/traces"):
        page.get_by_role("button", name="Look inside").click()
    drawn(page)
    page.get_by_role("button", name="Decoder", exact=True).click()
    box(page, "Layer").select_option("0")
    box(page, "Head").select_option("3")
    heading = page.get_by_role("heading", name="Head L0 · H3")
    heading.wait_for()
    page.get_by_role("button", name="Lines").click()
    page.wait_for_timeout(400)
    link = page.url
    page.reload()
    pages = [page, open_page(link.split("#/")[1])] if len(text) < 2000 else [page]
    for again in pages:
        again.get_by_role("heading", name="Head L0 · H3").wait_for()
        assert again.locator("textarea").first.input_value() == text
        assert again.get_by_role("button", name="Lines").get_attribute("aria-pressed") == "true"
        assert again.get_by_role("button", name="Decoder", exact=True).get_attribute("aria-pressed") == "true"


def test_what_is_typed_is_still_there_after_a_reload(open_page: Open, served: Served) -> None:
    page = open_page(f"generate/{served.id('demo')}")
    page.locator("textarea").fill("two birds see the horse")
    page.get_by_role("button", name="Sample", exact=True).click()
    page.get_by_label("Seed").fill("7")
    page.wait_for_timeout(300)
    page.reload()
    expect(page.locator("textarea")).to_have_value("two birds see the horse")
    expect(page.get_by_label("Seed")).to_have_value("7")


def test_an_unsent_edit_is_not_traced_when_the_server_comes_back(
    open_page: Open, demo: Path, tmp_path: Path
) -> None:
    shutil.copytree(demo, tmp_path / "runs" / "demo")
    with serving(tmp_path) as first:
        page = open_page(f"attention/{first.id('demo')}?text=two+birds+see+the+horse", url=first.url)
        expect(page.locator(".answer")).to_contain_text("鸟")
        port = int(first.url.rsplit(":", 1)[1])
    page.locator("textarea").first.fill(SENTENCE)  # typed, not sent
    with serving(tmp_path, port=port):
        with page.expect_response("**/api/traces") as again:
            box(page, "Head").select_option("1")
        assert again.value.json()["text"] == "two birds see the horse"
        expect(page.get_by_role("status").filter(has_text="restarted")).to_be_visible()
        expect(page.get_by_text("Shown below: “two birds see the horse”")).to_be_visible()
        page.close()
    refusals_expected(open_page)


def test_alternatives_are_reached_by_keys_alone_and_one_token_is_marked(
    open_page: Open, served: Served
) -> None:
    page = open_page(f"generate/{served.id('demo')}?text={SENTENCE}")
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_text("ended with the end token")).to_be_visible()
    said = page.get_by_test_id("said")
    count = said.get_by_role("button").count()
    assert count > 4 and said.locator("button[tabindex='0']").count() == 1
    said.locator("button[tabindex='0']").focus()
    for key in ("Home", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    others = page.get_by_role("group", name="Alternatives")
    expect(others).to_be_visible()
    said.get_by_role("button").nth(4).hover()  # a pointer on its way takes nothing over
    expect(said.locator("[aria-expanded='true']")).to_have_attribute("data-token", "2")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    chosen = page.evaluate("document.activeElement.querySelector('.word').textContent")
    page.keyboard.press("Enter")
    expect(said.locator(".forced")).to_have_count(1)
    expect(said.locator("[data-token='2']")).to_have_class(re.compile("forced"))
    assert said.locator("[data-token='2']").inner_text().strip() == chosen
    expect(page.get_by_text("tokens you chose by hand")).to_be_visible()


def terminal(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    assert words[0] == "clearhead"
    root = Path(__file__).parent.parent.parent
    env = {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-m", "clearhead", *words[1:]], cwd=home, env=env, capture_output=True, text=True
    )


def test_the_command_that_is_shown_does_the_same(open_page: Open, served: Served) -> None:
    page = open_page(
        f"generate/{served.id('demo')}?text=--help+{SENTENCE}&strategy=sample&seed=3&temperature=1.5"
    )
    page.get_by_label("Repetition penalty").fill("1.3")
    page.get_by_role("button", name="Generate", exact=True).click()
    expect(page.get_by_text(re.compile("ended with|stopped at"))).to_be_visible()
    tokens = page.get_by_test_id("said").get_by_role("button").all_inner_texts()
    page.get_by_label("Repetition penalty").fill("1")  # changed afterwards, and not sent
    done = terminal(page.get_by_test_id("command").inner_text(), served.home)
    assert done.returncode == 0, done.stderr
    said = "".join(token for token in tokens if not re.fullmatch(r"<.*>", token))
    assert re.sub(r"\s", "", done.stdout) == re.sub(r"\s", "", said)


def test_the_commands_of_the_other_screens_run(open_page: Open, served: Served, wide: str) -> None:
    demo = served.id("demo")
    page = open_page(f"attention/{demo}?text={SENTENCE}&target=狗+今天&kind=cross&layer=1&head=3")
    drawn(page)
    lines = [page.get_by_test_id("command").inner_text()]
    page.evaluate(f"location.hash = '#/compare/{demo}?a={demo}&b={demo}&eb=Linear()&text=old+dogs'")
    expect(page.get_by_test_id("command")).to_contain_text("Linear()")
    lines += page.get_by_test_id("command").inner_text().splitlines()
    page.evaluate("location.hash = '#/families?size=gpt2'")
    page.get_by_label("Layers").fill("24")
    expect(page.get_by_test_id("command")).to_contain_text("Tower.depth=24")
    parameters = page.get_by_test_id("parameters").inner_text()
    lines += page.get_by_test_id("command").inner_text().splitlines()
    assert [line.split()[1] for line in lines] == ["look", "look", "look", "plan"]
    done = [terminal(line, served.home) for line in lines]
    assert [each.returncode for each in done] == [0] * 4, [each.stderr for each in done]
    assert parameters in done[3].stdout.replace("\n", " ") or json.dumps(parameters) in done[3].stdout
    page.evaluate(f"location.hash = '#/generate/{wide}'")
    expect(page.get_by_text("does not generate text")).to_be_visible()
    expect(page.get_by_test_id("command")).to_have_count(0)


def test_a_tab_that_nobody_sees_lets_go_of_its_line(open_page: Open, served: Served) -> None:
    """A browser has six lines to one server; a seventh tab on a run would hang all of them."""
    page = open_page("home")
    ended: list[str] = []
    page.on("requestfailed", lambda r: ended.append(r.url))
    page.route("**/events", lambda route: None)  # a run that is at work: its events never end
    with page.expect_request("**/events"):
        page.evaluate(f"location.hash = '#/train?run={served.id('demo')}'")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    event = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true" + event)
    page.wait_for_timeout(300)
    assert any(url.endswith("/events") for url in ended)
    with page.expect_request("**/events"):
        page.evaluate(hide % "false" + event)


def test_with_a_key_the_page_takes_it_and_other_tabs_know_it(open_page: Open, tmp_path: Path) -> None:
    key = "a-key_of-twenty-letters"
    with serving(tmp_path, key=key) as locked:
        page = open_page("home", url=locked.url)  # without the key
        expect(page.get_by_role("alert")).to_contain_text("needs its key")
        page.get_by_label("Key").fill(key)
        page.get_by_role("button", name="Unlock").click()
        expect(page.get_by_role("heading", name="translator")).to_be_visible()
        fresh = open_page("home", url=locked.url)
        fresh.goto(f"{locked.url}/#key={key}&/home")
        expect(fresh.get_by_role("heading", name="translator")).to_be_visible()
        assert key not in fresh.url and "/home" in fresh.url
        second = fresh.context.new_page()
        second.goto(f"{locked.url}/")
        expect(second.get_by_role("heading", name="translator")).to_be_visible()
    refusals_expected(open_page)


def test_a_small_screen_has_room_for_the_screen(open_page: Open, served: Served) -> None:
    page = open_page(f"compare/{served.id('demo')}")
    drawn(page)
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.locator("header").first.bounding_box()["height"] < 110
    row = page.locator(".facts tr", has_text="Time").locator("td").first
    assert row.bounding_box()["width"] > 80


def test_a_long_word_does_not_push_the_page_aside(open_page: Open, served: Served) -> None:
    page = open_page(f"attention/{served.id('demo')}")
    drawn(page)

    def answered(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"answer": "a" * 3000})

    page.route(re.compile("/api/traces$"), answered)
    page.get_by_role("button", name="Look inside").click()
    expect(page.locator(".answer")).to_contain_text("aaaa")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


DARKEST_BLUE = """(canvas) => {
    const [width, height] = [canvas.width - 60, canvas.height - 40];
    const { data } = canvas.getContext("2d").getImageData(60, 40, width, height);
    let least = 255;
    for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] === 255 && data[i + 2] > data[i] + 40) least = Math.min(least, data[i]);
    return least;
}"""


def test_all_heads_are_as_dark_small_as_they_are_large(open_page: Open, served: Served, wide: str) -> None:
    page = open_page(f"attention/{wide}?text={'the quick brown fox jumps over the lazy dog ' * 12}")
    drawn(page)
    overview = page.locator("canvas[aria-label*='each as a thumbnail']")
    overview.wait_for()
    page.wait_for_timeout(300)
    darkest = overview.evaluate(DARKEST_BLUE)
    assert (
        darkest < 20
    )  # the deep end of the palette, darker than any frame; in absolute colours all are blank
