"""A law: the studio opens a model of every family, and every kind of head, and shows all of its views."""

from pathlib import Path
from typing import Any

import pytest
import trained
from references import tiny_sizes
from safetensors.torch import load
from served import ModelRegistry, Studio, create_app
from starlette.testclient import TestClient

import clearhead as ch
from clearhead.families import FAMILIES
from clearhead.nn import Model, Softmax
from clearhead.text.tokenizer import Tokenizer

HERE = "http://127.0.0.1:8765"
TEXT = "The quick fox 你好 jumps over the lazy dog"
# Every family with its language model; every head on BERT, and states alone on a pair of towers.
MEMBERS = [(name, "tokens") for name in FAMILIES if "tokens" in FAMILIES[name].architectures]
MEMBERS += [("bert", task) for task in FAMILIES["bert"].architectures if task != "tokens"]
MEMBERS += [("t5", "hidden")]


@pytest.mark.parametrize("name, task", MEMBERS, ids=lambda word: str(word))
def test_every_view_of_every_family(name: str, task: str, tmp_path: Path) -> None:
    family, folder = FAMILIES[name], tmp_path / "model"
    words = Tokenizer.read(trained.write(folder, "words" if family.mode == "bidirectional" else "bytes"))
    assert words is not None
    sizes = tiny_sizes(family, task)
    sizes |= {key: words.vocab for key in ("vocab_size", "decoder_vocab_size") if key in family.defaults}
    sizes |= {"cutoffs": [50, 100], "d_embed": 32, "d_head": 8} if "cutoffs" in family.defaults else {}
    sizes |= {"id2label": {0: "first", 1: "last"}} if task == "span" else {}
    bundle = ch.build(name, task=task, **sizes)
    bundle.tokenizer = words
    ch.save(bundle, folder)
    page = TestClient(create_app(Studio(ModelRegistry([str(folder)], home=tmp_path))), base_url=HERE)
    page.headers["origin"] = HERE
    look(page, bundle.spec)


def look(page: TestClient, spec: Model) -> None:
    sink = any(isinstance(node, Softmax) and node.sink for node in spec.nodes())

    def post(path: str, **body: Any) -> Any:
        answer = page.post(path, json=body)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    def get(path: str) -> Any:
        answer = page.get(path)
        assert answer.status_code == 200, (path, answer.text)
        return answer

    card = get("/api/home").json()["cards"][0]
    facts = get(f"/api/models/{card['id']}").json()
    trace = post("/api/traces", model=card["id"], text=TEXT)
    where = f"/api/traces/{trace['id']}"
    for kind in trace["kinds"]:
        thumbs = load(get(f"{where}/overview?kind={kind['kind']}").content)["thumbs"]
        assert thumbs.shape[:2] == (kind["layers"], kind["heads"])
        asked = f"kind={kind['kind']}&layer={kind['layers'] - 1}&head={kind['heads'] - 1}"
        rows, columns = load(get(f"{where}/head?{asked}").content)["sqrt"].shape
        sides = {"self": "source source", "decoder": "target target", "cross": "said source"}[
            kind["kind"]
        ].split()
        assert [rows, columns] == [len(trace[side]) for side in sides]
        row = load(get(f"{where}/row?{asked}&q=0").content)["row"]
        assert float(row.sum()) == pytest.approx(1, abs=2e-2) or (sink and 0 < float(row.sum()) < 1)
        post(f"{where}/without", kind=kind["kind"], layer=0, head=0)
        lesson = page.post("/api/steps", json={"model": card["id"], "text": TEXT, "kind": kind["kind"]})
        # An approximation has no scores to take apart, and says so.
        assert lesson.status_code == 200 or "no scores" in lesson.json()["error"], lesson.text
    if trace["lens"]:
        assert get(f"{where}/lens?count=3").json()["cells"]
    if facts["generates"]:
        asked = {"model": card["id"], "text": TEXT, "max_new": 3}
        said, tree = (
            page.post("/api/generate", json=asked),
            page.post("/api/beams", json=asked | {"beams": 2}),
        )
        if "attention cannot take fewer queries than keys" in said.text:
            return  # a kernel that cannot decode says so
        assert "event: done" in said.text, said.text
        assert tree.status_code == 200 and tree.json()["answers"], tree.text
