"""The API: what the page is told equals what the library says; what cannot be is refused in one line."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load
from served import Served

import clearhead as ch

TEXT = "three brave dogs help the old horse in the park today"


class Page:
    """Speaks as the page does."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.http = httpx.Client(base_url=served.url, headers={"origin": served.url}, timeout=60)

    def get(self, path: str, status: int = 200) -> httpx.Response:
        answer = self.http.get(path)
        assert answer.status_code == status, answer.text
        return answer

    def post(self, where: str, **body: Any) -> Any:
        answer = self.http.post(where, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def events(self, path: str, **body: Any) -> list[tuple[str, Any]]:
        text = self.http.post(path, json=body).text
        blocks = [
            dict(line.split(": ", 1) for line in part.splitlines()) for part in text.split("\n\n") if part
        ]
        return [(block["event"], json.loads(block["data"])) for block in blocks]


@pytest.fixture(scope="module")
def page(served: Served) -> Iterator[Page]:
    speaking = Page(served)
    yield speaking
    speaking.http.close()


@pytest.fixture(scope="module")
def demo_id(served: Served) -> str:
    return served.id("demo")


@pytest.fixture(scope="module")
def trace(page: Page, demo_id: str) -> Any:
    return page.post("/api/traces", model=demo_id, text=TEXT)


@pytest.fixture(scope="module")
def bundle(served: Served) -> ch.Bundle:
    return ch.load(str(served.home / "runs" / "demo"))


def test_home_finds_the_run_and_its_checkpoints(page: Page) -> None:
    card, example = page.get("/api/home").json()["cards"]
    assert (example["kind"], example["name"]) == ("example", "translator")
    assert (card["kind"], card["status"], card["where"]) == ("run", "ready", "runs/demo")
    assert [point["step"] for point in card["checkpoints"]] == [300, 600]
    for point in card["checkpoints"]:
        assert page.get(f"/api/models/{point['id']}").json()["pair"] is True


def test_weights_on_the_wire_are_the_lens_own(page: Page, trace: Any, bundle: ch.Bundle) -> None:
    ours = bundle.trace(TEXT)
    assert [token["label"] for token in trace["source"]] == [token.label for token in ours.tokens]
    for kind in ("self", "decoder", "cross"):
        where = f"/api/traces/{trace['id']}"
        overview = load(page.get(f"{where}/overview?kind={kind}").content)
        assert overview["thumbs"].shape[:2] == (2, 4)
        for layer in range(2):
            for head in range(4):
                exact = ours.attention(kind, layer, head)
                asked = f"kind={kind}&layer={layer}&head={head}"
                roots = load(page.get(f"{where}/head?{asked}").content)["sqrt"]
                # Half a step of the byte, through the square.
                torch.testing.assert_close((roots / 255.0) ** 2, exact, atol=2 / 255, rtol=0)
                row = load(page.get(f"{where}/row?{asked}&q=1").content)["row"]
                assert torch.equal(row, exact[1].half())
                small = overview["thumbs"][layer, head]
                assert int(small.max()) == int(roots.max())  # pooling loses no strong link


def test_scores_of_heads_are_the_lens_own(page: Page, trace: Any, bundle: ch.Bundle) -> None:
    from clearhead.lens.heads import head_scores

    told = load(page.get(f"/api/traces/{trace['id']}/overview?kind=self").content)
    scores = head_scores(bundle.trace(TEXT), "self")
    torch.testing.assert_close(told["score.entropy"], scores.entropy)
    assert {"score.previous", "score.first", "score.distance"} <= set(told)
    cross = load(page.get(f"/api/traces/{trace['id']}/overview?kind=cross").content)
    assert "score.previous" not in cross  # between two texts there is no previous token


def test_a_weight_taken_apart_comes_together_again(page: Page, trace: Any, bundle: ch.Bundle) -> None:
    cell = page.get(f"/api/traces/{trace['id']}/cell?kind=cross&layer=1&head=0&q=2&k=3").json()
    assert sum(q * k for q, k in zip(cell["q"], cell["k"], strict=True)) == pytest.approx(
        cell["dot"], rel=1e-4
    )
    assert cell["scale"] == pytest.approx(16**-0.5)
    assert cell["weight"] == pytest.approx(float(bundle.trace(TEXT).attention("cross", 1, 0)[2, 3]), abs=1e-6)
    masked = page.get(f"/api/traces/{trace['id']}/cell?kind=decoder&layer=0&head=0&q=0&k=1").json()
    assert masked["masked"] is True and masked["weight"] == 0


def test_the_lens_says_what_each_layer_would_have_said(page: Page, trace: Any) -> None:
    lens = page.get(f"/api/traces/{trace['id']}/lens?start=0&count=3").json()
    assert len(lens["cells"]) == 3 and all(len(row) == 3 for row in lens["cells"])  # embedding and two layers
    top = page.get(f"/api/traces/{trace['id']}/lens/top?layer=2&position=0").json()["top"]
    assert top[0]["text"] == lens["cells"][2][0]["text"] == trace["said"][0]["label"]
    assert sum(guess["p"] for guess in top) <= 1.0001


def test_a_head_switched_off_moves_the_answer_and_leaves_the_model(page: Page, trace: Any) -> None:
    before = page.get(f"/api/traces/{trace['id']}/row?kind=cross&layer=1&head=0&q=1").content
    moved = [
        page.post(f"/api/traces/{trace['id']}/without", kind="cross", layer=1, head=head)["change"]
        for head in range(4)
    ]
    assert max(moved) > 1e-3
    assert page.get(f"/api/traces/{trace['id']}/row?kind=cross&layer=1&head=0&q=1").content == before


def test_text_comes_token_by_token_and_can_be_forced(page: Page, demo_id: str, bundle: ch.Bundle) -> None:
    events = page.events("/api/generate", model=demo_id, text=TEXT)
    said = [data for name, data in events if name == "token"]
    (done,) = [data for name, data in events if name == "done"]
    assert done["text"] == bundle.generate(TEXT, max_new_tokens=64)
    assert all(token["others"][0]["id"] == token["id"] for token in said)  # the likeliest was taken
    other = said[1]["others"][1]["id"]
    forced = [
        d for n, d in page.events("/api/generate", model=demo_id, text=TEXT, forced=[said[0]["id"], other])
    ]
    assert [forced[0]["id"], forced[1]["id"]] == [said[0]["id"], other]
    assert forced[1]["forced"] and forced[1]["p"] == pytest.approx(said[1]["others"][1]["p"], rel=1e-3)
    assert not forced[2].get("forced")


def test_the_tree_of_beams_holds_its_answers(page: Page, demo_id: str, bundle: ch.Bundle) -> None:
    told = page.post("/api/beams", model=demo_id, text=TEXT, beams=3)
    assert told["answers"][0]["text"] == bundle.generate(TEXT, num_beams=3, max_new_tokens=64)
    nodes = {node["id"]: node for node in told["nodes"]}
    assert {node["fate"] for node in nodes.values()} == {"kept", "finished", "pruned"}
    for node in nodes.values():
        parent = nodes.get(node["parent"], {"score": 0.0, "step": -1})
        assert node["score"] == pytest.approx(parent["score"] + node["logprob"], abs=1e-3)
        assert node["step"] == parent["step"] + 1
    hypothesis = page.post("/api/traces", model=demo_id, text=TEXT, target_ids=told["answers"][1]["ids"])
    assert hypothesis["answer"] == told["answers"][1]["text"]


def test_the_lesson_has_real_numbers_and_breaks_when_parts_are_off(page: Page, demo_id: str) -> None:
    asked = {"model": demo_id, "text": TEXT, "kind": "cross", "layer": 1, "head": 0}
    whole = page.post("/api/steps", **asked)
    steps = {step["key"]: step for step in whole["steps"]}
    scores, scaled = (steps[key]["matrices"][0]["values"] for key in ("scores", "scale"))
    assert scaled[1][2] == pytest.approx(scores[1][2] * steps["scale"]["number"], abs=1e-3)
    assert sum(steps["softmax"]["matrices"][0]["values"][1]) == pytest.approx(1, abs=1e-2)
    for part in ("scale", "mask", "positions", "residual"):
        off = page.post("/api/steps", **asked, off=[part])
        assert off["before"] == whole["before"]
        assert off["after"] != whole["before"], part
    assert page.post("/api/steps", **asked, off=["positions", "residual"])["then"] != whole["said"]


def test_a_csv_is_the_head_and_no_formula(page: Page, demo_id: str, bundle: ch.Bundle) -> None:
    trace = page.post("/api/traces", model=demo_id, text="=1+1 old dogs")
    answer = page.get(f"/api/traces/{trace['id']}/file/csv?kind=self&layer=0&head=0")
    rows = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))
    exact = bundle.trace("=1+1 old dogs").attention("self", 0, 0)
    assert float(rows[2][3]) == pytest.approx(float(exact[1, 2]), rel=1e-4)
    assert not any(cell.startswith("=") for row in rows for cell in row)


def test_rows_have_the_names_of_the_screen(page: Page, trace: Any, demo_id: str) -> None:
    """A row of cross-attention is named by what it made the model say, in files and in the lesson, too."""
    names = [token["label"] for token in trace["said"]]
    answer = page.get(f"/api/traces/{trace['id']}/file/csv?kind=cross&layer=1&head=0")
    rows = list(csv.reader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert [row[0] for row in rows[1:]] == names
    lesson = page.post("/api/steps", model=demo_id, text=TEXT, kind="cross", layer=1, head=0)
    steps = {step["key"]: step for step in lesson["steps"]}
    assert steps["softmax"]["matrices"][0]["rows"] == names[:12]
    assert steps["embedding"]["matrices"][0]["rows"] == [t["label"] for t in trace["target"]][:12]
    source, target = steps["tokens"]["texts"]  # both texts, whole
    assert [t["label"] for t in source["tokens"]] == [t["label"] for t in trace["source"]]
    assert (source["side"], target["side"], target["count"]) == ("source", "target", len(trace["target"]))


def test_families_cost_what_the_library_says(page: Page) -> None:
    assert page.post("/api/families/picture", name="gpt3")["cost"]["parameters"] == 174_604_259_328
    bigger = page.post("/api/families/picture", name="gpt2", depth=24)
    assert bigger["towers"]["decoder"]["layers"] == 24
    diff = page.post("/api/families/diff", one="gpt2", two="llama")
    assert any(change["place"] == "tower.positions" for change in diff["changes"])


@pytest.mark.parametrize(
    "path, body, status, said",
    [
        ("/api/traces", {"model": "nothing-000000", "text": "x"}, 404, "no model or run"),
        ("/api/traces", {"model": "DEMO", "text": "x " * 3000}, 400, "shorten it"),
        ("/api/traces", {"model": "DEMO", "text": ""}, 422, "text"),
        ("/api/traces", {"model": "DEMO", "text": "\ud800"}, 422, "unicode"),
        ("/api/traces", {"model": "DEMO", "text": "x", "edit": "Nonsense(3)"}, 400, "onsense"),
        ("/api/generate", {"model": "DEMO", "text": "x", "forced": [9_999_999]}, 400, "9999999"),
        ("/api/generate", {"model": "DEMO", "text": "x", "temperature": 0}, 422, "temperature"),
        ("/api/steps", {"model": "DEMO", "text": "x", "layer": 99}, 400, "no head"),
        ("/api/steps", {"model": "DEMO", "text": "x", "off": ["soul"]}, 422, "off"),
        ("/api/models", {"path": "/no/such/folder"}, 400, "no folder"),
        ("/api/models", {"path": "/usr"}, 400, "neither a model nor a run"),
        ("/api/models/dropped", {"name": "nowhere"}, 400, "type it"),
        ("/api/families/picture", {"name": "gtp2"}, 400, "gpt2"),
        ("/api/families/picture", {"name": "gpt2", "heads": 7}, 400, "not divisible"),
        ("/api/runs", {"recipe": "nonsense"}, 400, "no recipe"),
        ("/api/runs", {"recipe": "gpt-chars", "settings": {"train.stepz": "3"}}, 400, "did you mean 'steps'"),
        ("/api/runs", {"recipe": "gpt-chars", "settings": {"--out": "/tmp/x"}}, 400, "not a setting"),
        ("/api/runs", {"recipe": "gpt-chars", "name": "///"}, 400, "cannot name a run"),
    ],
)
def test_what_cannot_be_is_one_line(
    page: Page, demo_id: str, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    body = {key: demo_id if value == "DEMO" else value for key, value in body.items()}
    answer = page.http.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"] and "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "view",
    [
        "head?layer=0&head=9",
        "head?layer=9&head=0",
        "row?layer=0&head=0&q=999",
        "lens/top?layer=0&position=999",
    ],
)
def test_heads_and_rows_that_are_not_there(page: Page, trace: Any, view: str) -> None:
    assert "there is no" in page.get(f"/api/traces/{trace['id']}/{view}", 400).json()["error"]


def test_a_trace_of_a_server_of_before_is_said_to_be_gone(page: Page) -> None:
    assert "no longer in memory" in page.get("/api/traces/0123456789abcdef/overview", 404).json()["error"]


def test_a_model_deleted_while_open_goes_on_answering(served: Served, page: Page, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "short-lived"
    shutil.copytree(served.home / "runs" / "demo", folder)
    opened = page.post("/api/models", path=str(folder))
    page.post("/api/traces", model=opened["id"], text=TEXT)
    shutil.rmtree(folder)
    assert page.post("/api/traces", model=opened["id"], text=TEXT)["answer"]
    cards = {card["id"]: card["status"] for card in page.get("/api/home").json()["cards"]}
    assert cards[opened["id"]] == "gone"


def test_twelve_by_twelve_heads_at_512_tokens_are_an_overview_of_600_kilobytes() -> None:
    from clearhead.serve.routes.traces import _overview

    sizes = {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 64}
    small = ch.build("bert", **sizes, vocab_size=100, max_position_embeddings=512)
    trace = small.trace(list(range(100)) * 5 + list(range(12)))
    told = _overview(trace, "self")
    assert 500_000 < len(told) <= 600_000
    assert load(told)["thumbs"].shape == (12, 12, 64, 64)


def test_a_single_link_survives_a_thumbnail() -> None:
    from clearhead.serve.wire import thumbnails

    weights = torch.zeros(1, 512, 512)
    weights[0, 300, 17] = 1.0
    assert int(thumbnails(weights, 64).max()) == 255
