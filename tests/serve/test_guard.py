"""The door: who is answered, what may change things, what every answer carries, what a body may weigh."""

import json
import logging
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from clearhead.cli.main import main
from clearhead.serve.app import create_app
from clearhead.serve.guard import MAX_REQUEST_BYTES, addresses
from clearhead.serve.registry import ModelRegistry
from clearhead.serve.studio import Studio

HERE = "http://127.0.0.1:8765"
OURS = {"origin": HERE, "content-type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(Studio(ModelRegistry(home=tmp_path_factory.mktemp("home")))), base_url=HERE)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1:80", "localhost", "", "[::1]",
     "127.0.0.1:8765.evil.example", "localhost:8765@evil.example", "0.0.0.0:8765", "127.0.0.2:8765",
     " 127.0.0.1:8765 x"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/studio.js", "/api/home", "/openapi.json", "/nowhere"])
def test_another_host_is_not_answered(client: TestClient, host: str, path: str) -> None:
    assert client.get(path, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LOCALHOST:8765"])
def test_our_own_names_are(client: TestClient, host: str) -> None:
    assert client.get("/api/home", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"content-type": "application/json"}, 403),  # no origin
        ({**OURS, "origin": "null"}, 403),
        ({**OURS, "origin": "http://evil.example"}, 403),
        ({**OURS, "origin": "https://127.0.0.1:8765"}, 403),
        ({**OURS, "origin": HERE + ".evil.example"}, 403),
        ({**OURS, "content-type": "text/plain"}, 415),  # what a form of another site can send
        ({**OURS, "content-type": "application/x-www-form-urlencoded"}, 415),
        ({**OURS, "content-type": "multipart/form-data; boundary=x"}, 415),
        ({**OURS, "sec-fetch-site": "cross-site"}, 403),
        ({**OURS, "sec-fetch-site": "same-site"}, 403),
        ({**OURS, "sec-fetch-site": "same-origin"}, 400),  # ours: heard, and then refused for what it says
    ],
)
def test_only_our_page_changes_things(client: TestClient, headers: dict[str, str], status: int) -> None:
    answer = client.post("/api/models", headers=headers, content=b'{"path": "nowhere"}')
    assert answer.status_code == status
    assert answer.json()["error"] and "\n" not in answer.json()["error"]


def test_another_site_cannot_look_either(client: TestClient) -> None:
    assert client.get("/api/home", headers={"sec-fetch-site": "cross-site"}).status_code == 403


@pytest.mark.parametrize("path", ["/", "/api/home", "/api/models/nothing", "/nowhere", "/openapi.json"])
def test_every_answer_is_dressed(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "http" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_beyond_the_limit_is_refused(client: TestClient, announced: bool) -> None:
    body = b'{"path": "' + b"x" * MAX_REQUEST_BYTES + b'"}'
    pieces = (body[i : i + 65536] for i in range(0, len(body), 65536))
    answer = client.post("/api/models", headers=OURS, content=body if announced else pieces)
    assert answer.status_code == 413
    assert client.get("/api/home").status_code == 200


PATHS = ["../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "static/../app.py",
         "..\\..\\etc\\passwd", "%00", "studio.js%00.html", "/etc/passwd", "//etc/passwd",
         "guard.py"]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_name_reaches_the_disk(client: TestClient, path: str) -> None:
    for prefix in ("/", "/api/models/", "/api/runs/", "/api/traces/x/file/"):
        answer = client.get(prefix + path)
        assert answer.status_code in (400, 404, 405, 422), (prefix + path, answer.status_code)
        assert "root:" not in answer.text and "import" not in answer.text


def test_with_a_key_every_route_of_the_api_asks_for_it(tmp_path: Path) -> None:
    made = create_app(Studio(ModelRegistry(home=tmp_path)), host="box", port=8765, key="k" * 20)
    client = TestClient(made, base_url="http://box:8765")
    assert client.get("/").status_code == 200  # the page itself holds nothing
    for path in client.get("/openapi.json", headers={"authorization": "Bearer " + "k" * 20}).json()["paths"]:
        place = path.replace("{id}", "x").replace("{ending}", "csv")
        for spelled in (place, "/" + place, place + "/", place.upper()):
            for method in ("GET", "POST"):
                answer = client.request(method, spelled, headers={"origin": "http://box:8765"})
                assert answer.status_code in (401, 403, 404, 415), (method, spelled, answer.status_code)
        assert client.get(place).status_code == 401
    wrong = {"authorization": "Bearer " + "k" * 19}
    assert client.get("/api/home", headers=wrong).status_code == 401
    assert client.get("/api/home", headers={"authorization": "Bearer " + "k" * 20}).status_code == 200


def test_a_proxy_is_heard_under_its_own_names_alone(tmp_path: Path) -> None:
    made = create_app(Studio(ModelRegistry(home=tmp_path)), proxied=["Studio.example.org"], key="k" * 20)
    client = TestClient(made, base_url="http://studio.example.org")
    key = {"authorization": "Bearer " + "k" * 20, "content-type": "application/json"}
    assert client.get("/api/home", headers=key).status_code == 200
    assert client.get("/api/home", headers=key | {"host": "example.org"}).status_code == 421
    for origin, status in (
        ("https://studio.example.org", 400),  # heard, and then refused for what it says
        ("https://127.0.0.1:8765", 403),
        ("https://evil.example", 403),
    ):
        sent = client.post("/api/models", headers=key | {"origin": origin}, content=b'{"path": "nowhere"}')
        assert sent.status_code == status, origin


def test_listening_to_everyone_we_answer_to_our_own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, 0, 0, "", ("10.1.2.3", 0)), (socket.AF_INET6, 0, 0, "", ("fe80::1%eth0", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *given: found)
    assert {"10.1.2.3:8765", "[fe80::1]:8765", "127.0.0.1:8765"} <= set(addresses("0.0.0.0", 8765))
    assert "10.1.2.3:8765" not in addresses("127.0.0.1", 8765)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`clearhead studio` up to where it would serve: the address it printed, and a client."""
    made: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: made.append(self.config.app))

    def start(*words: str) -> tuple[str, TestClient]:
        with pytest.raises(SystemExit) as ended:
            main(["studio", "--json", "--port", "0", *words])
        assert not ended.value.code
        url = json.loads(capsys.readouterr().out)["url"]
        return url, TestClient(made[-1], base_url=url.split("#")[0].rstrip("/"))

    return start


def test_every_start_has_a_key_of_its_own_and_nobody_comes_in_without(started: Any) -> None:
    urls = [started()[0] for _ in range(2)]
    assert urls[0].split("#")[1] != urls[1].split("#")[1]
    url, client = started()
    key = url.split("/#key=")[1]  # behind the #: no server, no log and no referrer sees it
    assert len(key) >= 40
    assert client.get("/").status_code == 200 and key not in client.get("/").text
    assert client.get("/api/home").status_code == 401
    assert client.get(f"/api/home?key={key}").status_code == 401
    assert client.get("/api/home", headers={"authorization": f"Bearer {key}"}).status_code == 200


def test_the_logging_of_the_process_is_left_alone(started: Any) -> None:
    closed: list[bool] = []

    class Watched(logging.Handler):
        def close(self) -> None:
            closed.append(True)

    handler = Watched()
    started()
    assert not closed
    logging.Handler.close(handler)


def test_without_a_key_only_when_asked_for(started: Any) -> None:
    url, client = started("--no-key")
    assert "key" not in url and client.get("/api/home").status_code == 200


def test_the_browser_is_not_told_the_key_on_its_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, str, int]] = []

    def look(address: str) -> bool:
        page = Path(address.removeprefix("file://"))
        seen.append((address, page.read_text(), page.stat().st_mode & 0o777))
        return True

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr("webbrowser.open", look)
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    with pytest.raises(SystemExit):
        main(["studio", "--port", "0"])
    key = re.search(r"#key=([\w-]+)", capsys.readouterr().out)
    assert key is not None
    ((address, page, mode),) = seen
    assert key[1] not in address and key[1] in page and mode == 0o600
    assert not Path(address.removeprefix("file://")).exists()  # and nothing is left of it


def test_a_key_file_that_others_can_read_is_mentioned(
    started: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "key"
    file.write_text("k" * 20)
    file.chmod(0o644)
    with pytest.raises(SystemExit):
        main(["studio", "--json", "--port", "0", "--key-file", str(file)])
    assert "chmod 600" in capsys.readouterr().err
    file.chmod(0o600)
    with pytest.raises(SystemExit):
        main(["studio", "--json", "--port", "0", "--key-file", str(file)])
    assert "chmod" not in capsys.readouterr().err


def test_everyone_is_no_address() -> None:
    assert not any("0.0.0.0" in address for address in addresses("0.0.0.0", 1))


@pytest.mark.parametrize(
    "words, said",
    [
        (["--host", "0.0.0.0"], "--key-file"),
        (["--host", "0.0.0.0", "--no-key"], "only with 127.0.0.1"),
        (["--port", "TAKEN"], "cannot listen"),
        (["--port", "99999"], "cannot listen"),
        (["/no/such/folder"], "no folder"),
        ([str(Path(__file__).parent)], "neither a model nor a run"),
        (["--host", "0.0.0.0", "--key-file", "/no/such/file"], "cannot be read"),
    ],
)
def test_bad_words_are_one_line_and_exit_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as stopped:
            main(["studio", "--no-browser", *(port if word == "TAKEN" else word for word in words)])
    told = capsys.readouterr().err
    assert stopped.value.code == 2 and said in told
    assert told.startswith("clearhead: ") and told.count("\n") == 1


def test_without_its_libraries_the_studio_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(SystemExit) as stopped:
        main(["studio", "--no-browser"])
    assert stopped.value.code == 2 and "pip install" in capsys.readouterr().err
