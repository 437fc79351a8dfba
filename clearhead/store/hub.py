"""Names of models: a folder or a hub id in, a local folder out. A path never touches the network."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..errors import LoadError, nearest, one_line, quoted, reason

# Text and safetensors; never a pickle, never code.
ALLOW_PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.txt", "*.model"]
# A second copy of the weights under other names, and weights in subfolders: not read, so not fetched.
IGNORE_PATTERNS = ["consolidated*.safetensors", "*/*.safetensors"]
OFFLINE = "HF_HUB_OFFLINE forbids the network; unset it, or pass a folder"

_WORD = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
# Nothing that looks like a path: no leading dot, slash or ~, no backslash, one slash, no `..`.
_HUB_ID = re.compile(
    rf"(?!.*\.\.)(?P<repo>(?:{_WORD}/)?{_WORD})(?:@(?P<revision>[A-Za-z0-9_][A-Za-z0-9_./-]*))?"
)


def resolve(name: str | Path) -> Path:
    """Resolve `folder`, `org/name`, `name` or `org/name@revision`; a local folder takes precedence."""
    if not isinstance(name, str | Path):
        raise LoadError(f"{quoted(name)} is neither a folder nor a hub id; expected a string or a path")
    path = Path(os.path.expanduser(name))
    if str(name) and os.path.exists(path):
        return path
    match = None if isinstance(name, Path) else _HUB_ID.fullmatch(name)
    if match is None:
        message = f"{quoted(str(name))} is neither a folder nor a hub id (org/name)"
        raise LoadError(f"{message}; {_similar_folder(path) or 'check the spelling'}")
    return _download(match["repo"], match["revision"], _similar_folder(path))


def resolve_offline(name: str | Path) -> Path | None:
    """As `resolve`, from this machine alone; None for what is not here."""
    path = Path(os.path.expanduser(name))
    if str(name) and os.path.exists(path):
        return path
    match = None if isinstance(name, Path) else _HUB_ID.fullmatch(name)
    if match is None:
        return None
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(match["repo"], revision=match["revision"], local_files_only=True))
    except Exception:  # whatever the library raises: it is not in the cache
        return None
    return folder if any(folder.glob("*.safetensors")) else None


def _similar_folder(path: Path) -> str:
    """The neighbour of a missing folder that was probably meant."""
    try:
        folders = [entry.name for entry in os.scandir(path.parent) if entry.is_dir()]
    except (OSError, ValueError):
        return ""
    hint = nearest(path.name, folders)
    return hint if hint.startswith("did you mean") else ""


def _download(repo: str, revision: str | None, hint: str) -> Path:
    from huggingface_hub import snapshot_download  # here alone: it is slow to import, and talks to the net

    try:
        path = snapshot_download(
            repo, revision=revision, allow_patterns=ALLOW_PATTERNS, ignore_patterns=IGNORE_PATTERNS
        )
    except Exception as error:  # its errors come from three libraries, and differ between versions
        at = f"{repo}@{revision}" if revision else repo
        raise LoadError(one_line(f"{quoted(at)} {_explain(error, repo)}{hint and '; ' + hint}")) from error
    folder = Path(path)
    if not any(folder.glob("*.safetensors")):
        raise LoadError(f"{quoted(repo)} {_no_weights()}")
    return folder


def _no_weights() -> str:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return f"has no weights in the local cache, and {OFFLINE}"
    return (
        "has no safetensors weights on the hub; pickles (.bin, .pt) can run code and are not fetched: choose "
        "a repository that has them, or convert it with transformers and save_pretrained(folder)"
    )


def _explain(error: Exception, repo: str) -> str:
    from huggingface_hub import constants, errors

    match error:
        case errors.GatedRepoError():
            return (
                f"is gated: ask for access at {constants.ENDPOINT}/{repo}, then log in with `hf auth login` "
                "or set HF_TOKEN"
            )
        case errors.RevisionNotFoundError():
            return "is not on the hub in this revision; check the name after @"
        case errors.RepositoryNotFoundError():
            return "is not a folder here and not on the hub, or private; check the spelling, or log in"
        case errors.HFValidationError():
            return "is not a hub id; expected org/name"
        case errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return f"is not complete in the local cache, and {OFFLINE}"
    why = reason(error.__cause__ or error)  # the library's own message is long
    return (
        f"is not a folder or file here, and could not be fetched from {constants.ENDPOINT}: {why}; where "
        "that is out of reach try HF_ENDPOINT=https://hf-mirror.com, or pass a folder"
    )
