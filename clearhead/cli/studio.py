"""`clearhead studio [MODEL|RUN ...]`: the page in a browser, served on this machine."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ..errors import InputError, MissingError
from .console import ERR, OUT, print_json

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")
MIN_KEY_LENGTH = 16  # characters of a key


def studio(
    *models: Annotated[str, Parameter(help="folders, runs, .gguf files or Hub ids; ./runs is searched")],
    port: Annotated[int | None, Parameter(help="default: 8765, or a free port")] = None,
    host: Annotated[
        str, Parameter(help="address to listen on; other than 127.0.0.1 needs --key-file")
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        Parameter(negative="", help="host name of a reverse proxy, as browsers send it: NAME or NAME:PORT"),
    ] = None,
    key_file: Annotated[Path | None, Parameter(help="file with the access key")] = None,
    no_key: Annotated[
        bool, Parameter(negative="", help="no access key: every user of this machine can connect")
    ] = False,
    no_browser: Annotated[
        bool, Parameter(negative="", help="do not open a browser, only print the address")
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="print the address as JSON")] = False,
) -> None:
    """See inside your models in a browser. Nothing leaves this machine.

    The address holds a key that is new at every start, so that other users of this machine cannot connect.
    """
    try:
        import uvicorn

        from ..serve import create_app
    except ImportError:
        raise MissingError("'clearhead[studio]'", "the studio's server") from None
    from ..serve import ModelRegistry, Studio

    key = _key(host, key_file, no_key=no_key)
    state = Studio(ModelRegistry(models))
    server_socket = _listen(host, port)
    number = server_socket.getsockname()[1]
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    app = create_app(state, host=host, port=number, key=key, proxied=allow_host or ())
    # The part after # stays in the browser: it is never sent to a server or written to a log.
    address = f"http://{name}:{number}/" + (f"#key={key}" if key else "")
    _print_address(address, number, host, json=json)
    # Without a logging configuration of its own: that would close every handler of this process, and with it,
    # for some libraries, the stream they write to.
    config = uvicorn.Config(app, log_config=None, log_level="warning", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    with (
        server_socket,
        _browser(address, enabled=not (no_browser or json or os.environ.get("SSH_CONNECTION"))),
    ):
        server.run(sockets=[server_socket])


def _print_address(address: str, port: int, host: str, *, json: bool) -> None:
    if json:
        print_json({"url": address, "port": port})
    else:
        OUT.print(f"studio   [link={address}]{address}[/link]", soft_wrap=True)
        if os.environ.get("SSH_CONNECTION") and host in LOCAL_HOSTS:
            login = f"{os.environ.get('USER', 'you')}@{socket.gethostname()}"
            OUT.print(f"         from your own machine: ssh -L {port}:127.0.0.1:{port} {login}")
        if host not in LOCAL_HOSTS:
            OUT.print("         without TLS the key can be read on the network; ssh -L is safer")
        OUT.print("         Ctrl-C stops it; runs that were started from it continue")
    sys.stdout.flush()  # a program that reads this through a pipe waits for the address


@contextmanager
def _browser(address: str, *, enabled: bool) -> Iterator[None]:
    """Open a browser. It is given a file that only this user can read, which leads to the address: the
    arguments of a command are shown to every user of the machine, and the address holds the key."""
    if not enabled:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="clearhead-") as folder:
        page = Path(folder) / "open.html"
        page.touch(mode=0o600)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}">'
            f'<a href="{escape(address)}">Clearhead studio</a>',
            encoding="utf-8",
        )
        webbrowser.open(page.as_uri())
        yield


def _key(host: str, file: Path | None, *, no_key: bool) -> str | None:
    """From the file, or a new one; never from the command line, which every user can read."""
    if no_key and (file is not None or host not in LOCAL_HOSTS):
        raise InputError("--no-key works only with 127.0.0.1 and without --key-file")
    if file is not None:
        return _read_key(file)
    if host not in LOCAL_HOSTS:
        raise InputError(
            f"--host {host} allows other machines to connect; set a key: --key-file FILE (such as one sock "
            f"with: umask 077; python -c 'import secrets; print(secrets.token_hex())' > FILE), or use ssh -L "
            f"and leave --host out"
        )
    return None if no_key else secrets.token_urlsafe(32)


def _read_key(file: Path) -> str:
    try:
        key = file.read_text(encoding="utf-8").strip()
        mode = file.stat().st_mode
    except OSError as error:
        raise InputError(f"the key file {file} cannot be read: {error.strerror}") from None
    if len(key) < MIN_KEY_LENGTH:
        raise InputError(f"the key in {file} has {len(key)} characters; expected {MIN_KEY_LENGTH} or more")
    if os.name == "posix" and mode & 0o077:
        ERR.print(f"note: other users can read {file}; chmod 600 {file}", style="yellow", markup=False)
    return key


def _listen(host: str, port: int | None) -> socket.socket:
    """The requested port, or 8765, or any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in (port,) if port is not None else (8765, 0):
        sock = socket.socket(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, number))
        except (OSError, OverflowError) as error:
            sock.close()
            reason = getattr(error, "strerror", None) or error
            if port is not None or number == 0:
                raise InputError(f"cannot listen on {host}:{number}: {reason}; try another --port") from None
        else:
            sock.listen()  # a browser that opens the address before the server is up waits instead of failing
            return sock
    raise AssertionError("unreachable")
