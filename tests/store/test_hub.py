"""Names of models: what is on disk wins and needs no network; a hub id goes to the library, faked here."""

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from checkpoints import assert_same, block_sockets, one_file, tensors
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from clearhead import store
from clearhead.errors import LoadError


class Hub:
    """Stands in for the download: remembers what was asked, answers with a folder or an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Path | Exception) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.patterns: dict[str, list[str]] = {}
        self.answer = answer
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.download)

    def download(self, repo_id: str, *, revision: str | None = None, **patterns: list[str]) -> str:
        self.asked.append((repo_id, revision))
        self.patterns = patterns
        if isinstance(self.answer, Exception):
            raise self.answer
        return str(self.answer)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder and no sockets."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    block_sockets(monkeypatch)
    return tmp_path / "home"


def refused(name: str | Path) -> str:
    with pytest.raises(LoadError) as caught:
        store.resolve(name)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    return str(caught.value)


def http_error(kind: type[Exception], text: str = "401 Client Error.\n\nfor url: https://x") -> Exception:
    """The library's errors want the answer of a server; versions differ in which one."""
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    return error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_what_is_on_disk_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, AssertionError("asked the hub"))
    one_file(home / "org" / "name")
    monkeypatch.setenv("HOME", str(home))
    for name in ("org/name", "./org/name", "~/org/name", home / "org" / "name", "org/../org/name"):
        assert_same(store.read_folder(store.resolve(name)).tensors, tensors())
    assert store.resolve("org/name/config.json") == Path("org/name/config.json")
    assert hub.asked == []


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("gpt2", ("gpt2", None)),
        ("openai-community/gpt2", ("openai-community/gpt2", None)),
        ("org/name.v1-x_y", ("org/name.v1-x_y", None)),
        ("org/name@main", ("org/name", "main")),
        ("gpt2@refs/pr/7", ("gpt2", "refs/pr/7")),
    ],
)
def test_hub_ids(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, asked: tuple[str, str | None]
) -> None:
    hub = Hub(monkeypatch, one_file(home / "cache"))
    assert store.resolve(name) == home / "cache"
    assert hub.asked == [asked]


def test_neither_pickles_nor_code_are_fetched(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, one_file(home / "cache"))
    store.resolve("org/name")
    offered = [
        "config.json", "model.safetensors", "model-00001-of-00002.safetensors", "tokenizer.model",
        "vocab.txt", "merges.txt", "chat_template.jinja", "1_Pooling/config.json",
        "pytorch_model.bin", "model.pt", "model.pth", "x.ckpt", "modeling.py", "tf_model.h5", "README.md",
        "onnx/model.onnx", "consolidated.safetensors", "original/model.safetensors", "flax_model.msgpack",
    ]  # fmt: skip
    taken = huggingface_hub.utils.filter_repo_objects(offered, **hub.patterns)
    assert list(taken) == offered[:8]


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "./gpt2", "../gpt2", "/nowhere/gpt2", "~/gpt2", "~nobody/gpt2", "a\\b", "C:\\gpt2", "a/b/c",
        "org/", "/org", "org//name", "a b", "gpt2@", "org/name@../x", "org/name@a/../x", "-gpt2", "gpt2-",
        "a\0b", "名/字", "a\nb", "http://x", "x" * 5000 + "!", Path("gpt2"), Path("org/name"),
    ],
)  # fmt: skip
def test_what_looks_like_a_path_never_becomes_a_hub_id(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str | Path
) -> None:
    hub = Hub(monkeypatch, AssertionError("asked the hub"))
    if name == ".":
        assert store.resolve(name) == Path(".")
    else:
        assert "is neither a folder nor a hub id (org/name)" in refused(name)
    assert hub.asked == []


def test_the_nearest_folder_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, http_error(RepositoryNotFoundError))
    for name in ("my-model", "other"):
        (home / "runs" / name).mkdir(parents=True)
    assert refused("./runs/my-modle").endswith("did you mean 'my-model'?")
    assert refused("runs/my-modle").endswith("did you mean 'my-model'?")
    assert refused("./runs/zzz").endswith("(org/name); check the spelling")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            http_error(GatedRepoError),
            "'org/name' is gated: ask for access at https://huggingface.co/org/name",
        ),
        (http_error(RepositoryNotFoundError), "is not a folder here and not on the hub, or private"),
        (http_error(RevisionNotFoundError), "is not on the hub in this revision"),
        (HFValidationError("Repo id must\nbe"), "is not a hub id; expected org/name"),
        (LocalEntryNotFoundError("Got: ConnectError\nno net"), "HF_ENDPOINT=https://hf-mirror.com"),
        (caused(LocalEntryNotFoundError("Got: a\nlong story"), OSError("no route")), ".co: no route; where"),
        (
            ConnectionError("no route\n\n  to host"),
            "fetched from https://huggingface.co: no route to host; where",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
        (RuntimeError("\x1b[31m" + "x" * 10**5), "could not be fetched"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_goes_wrong_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://huggingface.co")
    Hub(monkeypatch, error)
    assert words in refused("org/name"), refused("org/name")


def test_offline_and_not_in_the_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    Hub(monkeypatch, LocalEntryNotFoundError("Cannot find\nan appropriate cached snapshot"))
    message = refused("org/name@main")
    assert message.startswith(
        "'org/name@main' is not complete in the local cache, and HF_HUB_OFFLINE forbids"
    )
    (home / "empty").mkdir()
    Hub(monkeypatch, home / "empty")
    assert "has no weights in the local cache" in refused("org/name")


def test_a_repository_of_pickles(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    (home / "cache").mkdir()
    Hub(monkeypatch, home / "cache")
    assert "has no safetensors weights on the hub; pickles (.bin, .pt) can run code" in refused("org/name")


SCRIPT = """
import socket, sys
def refuse(*a, **k): raise AssertionError("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from clearhead import store
from clearhead.errors import LoadError
print(len(store.read_folder(store.resolve(sys.argv[1])).tensors))
print("huggingface_hub" in sys.modules)
try:
    store.resolve("org/name")
except LoadError as error:
    print(error)
"""


def test_the_real_library_offline(tmp_path: Path) -> None:
    """In a process of its own: a folder imports no hub library, and its own offline switch is honoured."""
    folder = one_file(tmp_path / "model")
    settings = {
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env={**os.environ, **settings},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    count, imported, message = run.stdout.splitlines()
    assert (count, imported) == ("5", "False")
    assert message.startswith(
        "'org/name' is not complete in the local cache, and HF_HUB_OFFLINE forbids the network"
    )
