"""A studio in a thread: what its tests talk to, served as `clearhead studio` serves it."""

import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

why = "the studio's server needs the extra `studio`: pip install clearhead[studio]"
uvicorn = pytest.importorskip("uvicorn", reason=why)
pytest.importorskip("fastapi", reason=why)

from clearhead.serve.app import create_app  # noqa: E402 (only where its libraries are)
from clearhead.serve.registry import ModelRegistry  # noqa: E402
from clearhead.serve.studio import Studio  # noqa: E402


@dataclass
class Served:
    url: str
    studio: Studio
    home: Path

    def id(self, name: str) -> str:
        return next(entry.id for entry in self.studio.registry.entries() if entry.path.name == name)


class serving:  # noqa: N801 (used as `with serving(home)`)
    def __init__(self, home: Path, *folders: str, port: int = 0, key: str | None = None) -> None:
        self.listening = socket.socket()
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listening.bind(("127.0.0.1", port))
        port = self.listening.getsockname()[1]
        studio = Studio(ModelRegistry(folders, home=home))
        app = create_app(studio, port=port, key=key)
        config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0, lifespan="off")
        self.server = uvicorn.Server(config)
        self.served = Served(f"http://127.0.0.1:{port}", studio, home)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.listening]}, daemon=True
        )

    def __enter__(self) -> Served:
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return self.served

    def __exit__(self, *error: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        self.listening.close()
