"""Opening models: whatever the library loads, a sentence for what it does not; prompts as each expects."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import trained
from served import ModelRegistry, Studio, create_app
from starlette.testclient import TestClient

import clearhead as ch
from clearhead.families import FAMILIES
from clearhead.serve import registry as registries
from clearhead.serve.registry import EXAMPLE
from clearhead.text.tokenizer import Tokenizer

HERE = "http://127.0.0.1:8765"
TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {% endfor %}[assistant]"


def client(home: Path, *models: str) -> TestClient:
    made = TestClient(create_app(Studio(ModelRegistry(models, home=home))), base_url=HERE)
    made.headers["origin"] = HERE
    return made


def ok(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


def writer(folder: Path, *, chat: bool = False) -> Path:
    """A small GPT over bytes, with a chat template or without."""
    words = Tokenizer.read(trained.write(folder, "bytes"))
    assert words is not None
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": words.vocab}
    bundle = ch.build("gpt2", **sizes)
    bundle.tokenizer = words
    if chat:
        words.set_chat_template(TEMPLATE)
    ch.save(bundle, folder)
    return folder


def test_a_gguf_file_is_opened_and_found(tmp_path: Path) -> None:
    ggufs = pytest.importorskip("ggufs")
    path = ggufs.write(tmp_path / "small.gguf", ggufs.llama())
    page = client(tmp_path)
    assert "small.gguf" in [card["name"] for card in ok(page.get("/api/home"))["cards"]]
    facts = ok(page.post("/api/models", json={"path": str(path)}))
    assert facts["title"] == "LLaMA" and facts["where"] == "small.gguf"
    assert (
        ok(page.post("/api/traces", json={"model": facts["id"], "text": "hello"}))["kinds"][0]["layers"] == 2
    )
    assert client(tmp_path / "elsewhere", str(path)).get("/api/home").status_code == 200


def test_a_hub_id_is_fetched_as_the_library_fetches_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "hub" / "models--someone--small-gpt" / "snapshots" / "0123abc"
    shutil.copytree(writer(tmp_path / "made"), snapshot)
    asked = []
    monkeypatch.setattr(registries, "resolve", lambda name: asked.append(name) or snapshot)
    (tmp_path / "home").mkdir()
    page = client(tmp_path / "home")
    facts = ok(page.post("/api/models", json={"path": "someone/small-gpt"}))
    assert facts["name"] == "someone/small-gpt" and facts["id"].startswith("small-gpt-")
    assert asked == ["someone/small-gpt"]
    for path in ("/no/such", "nowhere", "./a/b", "~/a/b", "a/b/c", "../a"):  # these are paths
        assert page.post("/api/models", json={"path": path}).status_code == 400
    assert asked == ["someone/small-gpt"]


@pytest.mark.parametrize(
    "path", ["~nobody-at-all/x", "a\0b", "x" * 300, "x/" * 1000, "~", "config.json"]
)  # fmt: skip
def test_a_path_that_is_none_is_one_line(tmp_path: Path, path: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    answer = client(tmp_path).post("/api/models", json={"path": path})
    assert answer.status_code == 400 and "\n" not in answer.json()["error"], answer.text


@pytest.mark.parametrize("kernel", ["Performer(features=100000000)", "Window(left=99999999999999999999)"])
def test_a_kernel_beyond_the_memory_is_refused(tmp_path: Path, kernel: str) -> None:
    page = client(tmp_path, str(EXAMPLE / "translator"))
    model = ok(page.get("/api/home"))["cards"][0]["id"]
    answer = page.post("/api/traces", json={"model": model, "text": "old dogs", "edit": kernel})
    assert answer.status_code == 400 and "smaller" in answer.json()["error"], answer.text


def test_a_message_is_written_by_the_template(tmp_path: Path) -> None:
    folder = writer(tmp_path / "chatty", chat=True)
    page, bundle = client(tmp_path), ch.load(folder)
    facts = ok(page.get(f"/api/models/{ModelRegistry(home=tmp_path).id_of(folder)}"))
    assert facts["chat"] is True
    asked = {"model": facts["id"], "text": "What is it?", "max_new": 8}
    want = bundle.generate([{"role": "user", "content": "What is it?"}], max_new_tokens=8)
    assert bundle.generate("What is it?", max_new_tokens=8) != want  # or the test says nothing
    said = page.post("/api/generate", json={**asked, "chat": True}).text
    done = said.split("event: done\ndata: ")[1]
    assert json.loads(done)["text"] == want
    beams = ok(page.post("/api/beams", json={**asked, "chat": True, "beams": 2}))
    assert beams["answers"][0]["text"] == bundle.generate(
        [{"role": "user", "content": "What is it?"}], max_new_tokens=8, num_beams=2
    )
    trace = ok(
        page.post("/api/traces", json={**asked, "chat": True, "target_ids": beams["answers"][0]["ids"]})
    )
    assert "".join(token["text"] for token in trace["source"][: trace["prompt"]]).startswith(
        "[user] What is it?"
    )
    assert trace["answer"] == beams["answers"][0]["text"]


def test_without_a_template_there_is_no_chat(tmp_path: Path) -> None:
    folder = writer(tmp_path / "plain")
    page = client(tmp_path)
    facts = ok(page.get(f"/api/models/{ModelRegistry(home=tmp_path).id_of(folder)}"))
    assert facts["chat"] is False
    answer = page.post("/api/generate", json={"model": facts["id"], "text": "x", "chat": True})
    assert answer.status_code == 400 and "no chat template" in answer.json()["error"]


def test_ids_of_one_vocabulary_are_not_fed_to_another(tmp_path: Path) -> None:
    writer(tmp_path / "writer")
    shutil.copytree(EXAMPLE / "translator", tmp_path / "translator")
    page, registry = client(tmp_path), ModelRegistry(home=tmp_path)
    one, other = (registry.id_of(tmp_path / name) for name in ("translator", "writer"))
    seen = ok(page.post("/api/traces", json={"model": one, "text": "old dogs"}))
    ids = [token["id"] for token in seen["target"][1:]]
    asked = {"text": "old dogs", "target_ids": ids, "vocabulary": seen["vocabulary"]}
    assert ok(page.post("/api/traces", json={"model": one, **asked}))["vocabulary"] == seen["vocabulary"]
    answer = page.post("/api/traces", json={"model": other, **asked})
    assert answer.status_code == 400 and "another vocabulary" in answer.json()["error"]


def test_the_chinese_page_has_words_for_the_uses_of_every_family() -> None:
    known = (Path(__file__).parents[2] / "studio" / "src" / "lib" / "uses.ts").read_text(encoding="utf-8")
    assert [family.name for family in FAMILIES.values() if f'"{family.uses}": "' not in known] == []
