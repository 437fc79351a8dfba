"""`clearhead studio [MODEL|RUN ...]`: the page in a browser, served from this machine to this machine."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError, MissingError
from .console import OUT, print_json

LOCAL = ("127.0.0.1", "localhost", "::1")


def studio(
    *folders: Annotated[str, Parameter(help="models and runs to open; those in ./runs are found")],
    port: Annotated[int | None, Parameter(help="default 8765, or a free one")] = None,
    host: Annotated[str, Parameter(help="another than 127.0.0.1 lets others in, with a key")] = "127.0.0.1",
    key_file: Annotated[Path | None, Parameter(help="a file with the key others must know")] = None,
    no_browser: Annotated[bool, Parameter(negative="", help="only print the address")] = False,
    json: Annotated[bool, Parameter(negative="", help="the address for machines")] = False,
) -> None:
    """See inside your models in a browser. Nothing leaves this machine."""
    try:
        import uvicorn

        from ..serve.app import create_app
    except ImportError:
        raise MissingError("'clearhead[studio]'", "the studio's server") from None
    from ..serve.shelf import Shelf
    from ..serve.studio import Studio

    key = _key(host, key_file)
    made = Studio(Shelf(folders))
    listening = _listen(host, port)
    number = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else socket.gethostname() if host == "0.0.0.0" else host
    app = create_app(made, host=name.strip("[]"), port=number, key=key)
    address = f"http://{name}:{number}/" + (f"?key={key}" if key else "")
    if json:
        print_json({"url": address, "port": number})
    else:
        OUT.print(f"studio   [link={address}]{address}[/link]", soft_wrap=True)
        if os.environ.get("SSH_CONNECTION") and host in LOCAL:
            OUT.print(f"         from your own machine: ssh -L {number}:127.0.0.1:{number} {_self()}")
        OUT.print("         Ctrl-C stops it; runs that were started from it go on")
    sys.stdout.flush()  # whoever reads this through a pipe is waiting for the address
    if not no_browser and not json and not os.environ.get("SSH_CONNECTION"):
        webbrowser.open(address)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
    server.run(sockets=[listening])


def _key(host: str, file: Path | None) -> str | None:
    """On our own loop nobody else can call; anywhere else a key is needed, and never on the command line."""
    if file is not None:
        try:
            key = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"the key file {file} cannot be read: {error.strerror}") from None
        if len(key) < 16:
            raise InputError(f"the key in {file} has {len(key)} letters; expected 16 or more")
        return key
    if host in LOCAL:
        return None
    raise InputError(
        f"--host {host} lets others in; give a key they must know: --key-file FILE (such as one made with: "
        f"python -c 'import secrets; print(secrets.token_hex())' > FILE), or use ssh -L and leave --host out"
    )


def _listen(host: str, port: int | None) -> socket.socket:
    """The port asked for, or 8765, or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (port,) if port is not None else (8765, 0):
        made = socket.socket(family)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
        except (OSError, OverflowError) as error:
            made.close()
            reason = getattr(error, "strerror", None) or error
            if port is not None or number == 0:
                raise InputError(f"cannot listen on {host}:{number}: {reason}; try another --port") from None
        else:
            return made
    raise AssertionError("unreachable")


def _self() -> str:
    return f"{os.environ.get('USER', 'you')}@{socket.gethostname()}"
