"""Pictures and the page: everything is drawn, words stay words, Chinese has letters, nothing is fetched."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from speakers import TEXT, reader, translator, with_experts, writer
from zoo import EVERY

import clearhead as ch
from clearhead.errors import InputError
from clearhead.lens import pictures
from clearhead.lens.gradients import Gradients
from clearhead.lens.page import bytes_of, page
from clearhead.lens.pictures import canvas
from clearhead.lens.pictures.architecture import PURPLE
from clearhead.lens.pictures.experts import expert_colours
from clearhead.lens.position_effects import position_effects, scheme_named
from clearhead.lens.saving import VIEWS
from clearhead.nn.positions import Positions

CHROMIUM = shutil.which("chromium")


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_drawn_with_its_words_as_text(view: str, tmp_path: Path) -> None:
    bundle = {"arcs": writer, "routing": with_experts}.get(view, translator)(tmp_path)
    trace = bundle.trace(TEXT, **({"beams": 2} if view == "tree" else {"generate": True}), max_new_tokens=4)
    kind = "decoder" if view == "rollout" else None
    path = trace.save(tmp_path / "a.svg", view=view, kind=kind)
    drawn = path.read_text(encoding="utf-8")
    assert "<text" in drawn and "<svg" in drawn
    if view == "routing":
        kind = "self"
        drawn = trace.save(path, view=view, kind=kind).read_text(encoding="utf-8")
    if view in ("heat", "lines", "alignment", "arcs", "routing"):
        label = next(t.label for t in trace.tokens if t.label in "你好")
        assert f">{label}" in drawn  # the letter itself, not its outline
    first = path.read_bytes()
    assert trace.save(path, view=view, kind=kind).read_bytes() == first  # the same trace, the same bytes


def test_png_and_pdf_have_chinese_letters_or_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = reader(tmp_path).trace("今天天气很好")
    if canvas.chinese_font() is None:
        pytest.skip("this machine has no Chinese font: apt install fonts-noto-cjk")
    assert trace.save(tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert trace.save(tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")
    monkeypatch.setattr(canvas, "chinese_font", lambda: None)
    with pytest.raises(InputError, match="apt install fonts-noto-cjk"):
        trace.save(tmp_path / "b.png")
    assert "今" in trace.save(tmp_path / "b.svg").read_text()  # text needs no font here


def test_control_characters_are_shown_and_leave_svg_files_whole() -> None:
    drawn = canvas.picture(2, 1, lambda figure, axes: axes.text(0, 0, "a\x1db\x00\ud800\uffff")).render("svg")
    assert "a␝b␀\ufffd\ufffd" in "".join(ElementTree.fromstring(drawn).itertext())


def test_drawing_leaves_the_plotting_library_as_it_was(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    reader(tmp_path).trace(TEXT).save(tmp_path / "a.png", view="grid")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("name", [n for n in Positions.kinds() if n != "NoPositions"])
def test_every_position_scheme_has_a_picture(name: str) -> None:
    made = position_effects(scheme_named(name, 40, 64), length=40, width=64, heads=4)
    assert made.added_TD is not None or made.rotated_TE is not None or made.bias_HT is not None
    picture = pictures.position_picture(made)
    assert picture.render("svg").startswith(b"<?xml")
    assert overlapping(picture) == []


def overlapping(picture: canvas.Picture) -> list[tuple[str, str]]:
    """Panels, with their labels, that are drawn over each other."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawing = FigureCanvasAgg(picture.figure)
    drawing.draw()
    panels = [axes.get_tightbbox(drawing.get_renderer()) for axes in picture.figure.axes]
    names = [axes.get_title() or axes.get_label() or "colour bar" for axes in picture.figure.axes]
    return [
        (names[i], names[j]) for i in range(len(panels)) for j in range(i) if panels[i].overlaps(panels[j])
    ]


def test_the_picture_of_the_notes_is_their_formula() -> None:
    """100 positions, 512 dimensions: sin(p / 10000^(2i/d)) and cos side by side."""
    made = position_effects(scheme_named("sinusoidal", 100))
    assert made.added_TD is not None and made.added_TD.shape == (100, 512)
    p, i = torch.arange(100.0)[:, None], torch.arange(0.0, 512, 2)
    angle = p / 10000 ** (i / 512)
    assert torch.allclose(made.added_TD[:, 0::2], angle.sin(), atol=1e-5)
    assert torch.allclose(made.added_TD[:, 1::2], angle.cos(), atol=1e-5)
    assert made.wavelengths[0] == pytest.approx(6.2832, abs=1e-4)
    assert made.wavelengths[-1] == pytest.approx(2 * 3.14159265 * 10000 ** (510 / 512))
    with pytest.raises(InputError, match="did you mean 'rope'"):
        scheme_named("ropee", 10)


@pytest.mark.parametrize(
    "name", ["pair/order-post", "decoder/order-parallel", "encoder/pattern", "head/Labels"]
)
def test_any_spec_has_a_drawing_with_its_shapes(name: str) -> None:
    drawn = pictures.architecture(EVERY[name], "A <model>").render("svg").decode()
    assert "(B, T, 24)" in drawn and "4 heads" in drawn and f"{EVERY[name].count():,} parameters" in drawn
    assert ("cross-attention" in drawn) == name.startswith("pair")
    # A decoder's own attention is masked, in a language model as in a translator; an encoder's is not.
    assert ("masked self-attention" in drawn) == name.startswith(("pair", "decoder"))
    assert (">self-attention" in drawn) == (not name.startswith("decoder"))


def test_the_encoder_output_leaves_above_all_layers_of_the_encoder() -> None:
    axes = pictures.architecture(EVERY["pair/order-post"], "").figure.axes[0]
    (line,) = [line for line in axes.lines if line.get_color() == PURPLE]
    frames = [patch.get_bbox() for patch in axes.patches if patch.get_linestyle() == "--"]
    start, highest = line.get_xydata()[0], max(line.get_ydata())
    encoder = min(frames, key=lambda box: box.x0)
    assert encoder.x0 < start[0] < encoder.x1 and highest > encoder.y1


def test_curves_and_gradients() -> None:
    records = [{"step": i, "loss": 3.0 / i, "grad_norm": 1.0, "lr": 0.1} for i in (1, 2, 3)]
    held = {"step": 3, "split": "valid", "scores": {"loss": 0.9}}
    assert b"validation" in pictures.curves([*records, held]).render("svg")
    with pytest.raises(InputError, match="nothing to draw"):
        pictures.curves([])
    strip = pictures.gradient_strip(Gradients(2.0, {}, {"a": 1.0, "b": 1.5, "c": 1e-9}))
    assert b"vanishing" in strip.render("svg") and strip._repr_png_().startswith(b"\x89PNG")


def test_one_byte_keeps_small_weights() -> None:
    weights = torch.rand(1000, generator=torch.Generator().manual_seed(0)) ** 4
    back = (torch.frombuffer(bytearray(bytes_of(weights)), dtype=torch.uint8) / 255.0) ** 2
    assert float((back - weights).abs().max()) < 1 / 255
    small = weights[weights < 0.01]
    assert float((back[weights < 0.01] - small).abs().max()) < 4e-4


def test_the_page_holds_the_weights_and_no_address(tmp_path: Path) -> None:
    trace = translator(tmp_path).trace(TEXT + " </script><b>", max_new_tokens=4)
    text = page(trace)
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
    assert data["start"] == {"kind": "cross", "layer": 1, "head": 0}  # as everywhere: the last layer
    elsewhere = trace.save(tmp_path / "b.html", kind="self", layer=0, head=1).read_text(encoding="utf-8")
    assert '"start": {"kind": "self", "layer": 0, "head": 1}' in elsewhere
    kind = data["kinds"]["cross"]
    raw = gzip.decompress(base64.b64decode(kind["weights"]))
    weights = torch.frombuffer(bytearray(raw), dtype=torch.uint8).float().div(255).square()
    assert torch.allclose(
        weights.reshape(trace.attention("cross").shape), trace.attention("cross"), atol=4e-3
    )
    assert [label for label, _ in kind["rows"]] == trace.labels("cross")[0]
    framed = trace._repr_html_()
    assert framed.startswith("<iframe srcdoc=") and "<script" not in framed


def test_the_page_has_the_experts_of_every_token(tmp_path: Path) -> None:
    trace = with_experts(tmp_path).trace(TEXT, max_new_tokens=4)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page(trace), re.S)[1])  # type: ignore[index]
    for kind, side in (("self", "encoder"), ("cross", "decoder")):
        experts, routing_LTE = data["kinds"][kind]["experts"], trace.routing(side=side)
        assert experts["layers"] == [0, 1] and experts["experts"] == 6
        assert experts["tokens"] == [token.label for token in trace.sides(kind)[0]]
        for layer, choices in enumerate(experts["chosen"]):
            for token, chosen in enumerate(choices):
                weights = dict(map(tuple, chosen))
                assert list(weights.values()) == sorted(weights.values(), reverse=True)
                want = {e: w for e, w in enumerate(routing_LTE[layer, token].tolist()) if w}
                assert weights == pytest.approx(want, abs=1e-4)
    plain = json.loads(re.search(r'id="data">(.*?)</script>', page(reader(tmp_path).trace(TEXT)), re.S)[1])
    assert plain["kinds"]["self"]["experts"] is None


@pytest.mark.parametrize(("layers", "tokens", "experts", "chosen"), [(1, 1, 1, 1), (3, 5, 4, 1), (2, 9, 6, 2),
                         (40, 130, 70, 8)])  # fmt: skip
def test_experts_are_drawn_at_every_size(layers: int, tokens: int, experts: int, chosen: int) -> None:
    """A colour of its own for every expert, no panel over another, and what found no room is blank."""
    key = torch.Generator().manual_seed(0)
    routing = torch.rand(layers, tokens, experts, generator=key)
    routing = torch.where(routing >= routing.topk(chosen).values[..., -1:], routing, 0.0)
    routing[0, 0] = 0.0
    picture = pictures.expert_map(routing, range(layers), [f"token {i}" for i in range(tokens)], "title")
    assert overlapping(picture) == []
    assert len({tuple(c) for c in expert_colours(experts)}) == experts
    drawn = picture.render("svg").decode()
    assert "title" in drawn and ("–" in drawn) == (layers < 40)


COUNT_CANVAS_CALLS = """
window.canvasCalls = 0;
const canvas = CanvasRenderingContext2D.prototype;
for (const name of ["putImageData", "drawImage", "fillRect", "strokeRect", "fillText", "stroke", "fill"]) {
  const call = canvas[name];
  canvas[name] = function (...given) { window.canvasCalls += 1; return call.apply(this, given); };
}
"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs the browser: apt install chromium")
def test_a_page_of_144_heads_and_256_tokens_draws_each_head_at_once(tmp_path: Path) -> None:
    """As one picture per head, not one rectangle per weight: 9.4 million of those would take minutes."""
    from playwright.sync_api import sync_playwright

    bundle = ch.build("gpt2", n_layer=12, n_head=12, n_embd=96, vocab_size=50)
    ids = torch.randint(0, 50, (256,), generator=torch.Generator().manual_seed(0))
    trace = bundle.trace(ids)
    path = trace.save(tmp_path / "a.html")
    assert path.stat().st_size < 12e6
    asked, wrong = [], []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        sheet = browser.new_page(viewport={"width": 1200, "height": 900})
        sheet.on("request", lambda request: asked.append(request.url))
        sheet.on("console", lambda message: wrong.append(message.text))
        sheet.on("pageerror", lambda error: wrong.append(str(error)))
        sheet.add_init_script(COUNT_CANVAS_CALLS)
        sheet.goto(path.as_uri())
        sheet.wait_for_function("document.documentElement.dataset.drawn")
        calls = sheet.evaluate("window.canvasCalls")
        sheet.locator("#overview").click(position={"x": 60, "y": 100})
        said = sheet.locator("#summary").inner_text()
        sheet.locator("#overview").press("ArrowRight")
        moved = sheet.locator("#summary").inner_text()
        sheet.locator("#language").click()
        chinese = sheet.locator("#summary").inner_text()
        browser.close()
    assert asked == [path.as_uri()] and wrong == []
    assert 0 < calls < 144 * 20, calls
    layer, head = map(int, re.match(r"layer (\d+), head (\d+)", said).groups())  # type: ignore[union-attr]
    weight = float(said.split()[-1]) if said.split()[-1][0] in "01" else -1.0
    assert 0 <= weight <= 1 and float(trace.attention("self", layer, head)[0].max()) == pytest.approx(1.0)
    assert f"layer {layer}, head {head + 1}" in moved and f"第 {layer} 层" in chinese


def test_a_font_that_was_installed_after_the_cache_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """matplotlib's list of fonts is a file of an earlier day; the advice to install one must help at once."""
    from matplotlib import font_manager

    class OldList:
        def __init__(self) -> None:
            self.ttflist = [font_manager.FontEntry(fname="old.ttf", name="DejaVu Sans")]

        def addfont(self, path: str) -> None:
            if path == "broken.ttf":
                raise RuntimeError("not a font")
            self.ttflist.append(font_manager.FontEntry(fname=path, name="Noto Sans CJK SC"))

    monkeypatch.setattr(font_manager, "fontManager", OldList())
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: ["old.ttf", "broken.ttf", "new.ttc"])
    assert canvas.chinese_font.__wrapped__() == "Noto Sans CJK SC"
