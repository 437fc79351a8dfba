"""The small files beside a vocabulary: their JSON in, special tokens, limits and the chat template out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken

from ..errors import LoadError
from ..readfile import parse_json

ROLES = ("pad", "bos", "eos", "unk", "mask", "cls", "sep")
NO_LIMIT = 10**9  # a model_max_length above this means "no limit"

Files = Mapping[str, bytes]


class Settings:
    """The merged content of `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json`."""

    def __init__(self, files: Files) -> None:
        self.config = _read(files, "tokenizer_config.json")
        # A newer folder has everything in its config; in an older one the map has priority.
        newer = "added_tokens_decoder" in self.config
        config = self.config if newer else {**self.config, **_read(files, "special_tokens_map.json")}
        self.named: dict[str, AddedToken] = {
            role: _token(config[f"{role}_token"]) for role in ROLES if config.get(f"{role}_token")
        }
        extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
        self.extra = [_token(value) for value in (extra.values() if isinstance(extra, dict) else extra)]
        self.added = _added(self.config, {} if newer else _read(files, "added_tokens.json"), self.named)
        self.chat_template = _chat_template(files, self.config)
        self.model_max_length = _max_length(self.config.get("model_max_length"))
        self.cleans_up_spaces = self.config.get("clean_up_tokenization_spaces") is True

    def flag(self, key: str) -> bool | None:
        """True, False, or None if not given."""
        value = self.config.get(key)
        return value if isinstance(value, bool) else None


def _read(files: Files, name: str) -> dict[str, Any]:
    settings = parse_json(files.get(name, b"{}"), name)
    if not isinstance(settings, dict):
        raise LoadError(f"{name} holds a {type(settings).__name__}, expected names and values")
    return settings


def _token(value: object, *, special: bool = True) -> AddedToken:
    """A token as files write it: a string, or a string and how it treats the spaces around it."""
    if isinstance(value, str):
        return AddedToken(value, special=special, normalized=False)
    if isinstance(value, dict) and isinstance(value.get("content"), str) and value["content"]:
        return AddedToken(
            value["content"],
            lstrip=value.get("lstrip") is True,
            rstrip=value.get("rstrip") is True,
            single_word=value.get("single_word") is True,
            normalized=value.get("normalized") is True,
            special=special,
        )
    raise LoadError(
        f"{str(value)[:40]!r} is not a special token; expected a string or an object with 'content'"
    )


def _added(
    config: Mapping[str, Any], ids: Mapping[str, int], named: Mapping[str, AddedToken]
) -> list[AddedToken]:
    """Tokens that joined the vocabulary later, in the order of their ids."""
    decoder = config.get("added_tokens_decoder") or {}
    special = {token.content for token in named.values()}
    newer = [_token(decoder[i], special=decoder[i].get("special") is True) for i in sorted(decoder, key=int)]
    older = [
        AddedToken(name, special=name in special, normalized=name not in special)
        for name in sorted(ids, key=lambda name: ids[name])
    ]
    return newer + older


def _chat_template(files: Files, config: Mapping[str, Any]) -> str | None:
    if "chat_template.jinja" in files:
        return files["chat_template.jinja"].decode("utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):  # several, by name
        template = {each.get("name"): each.get("template") for each in template}.get("default")
    return template if isinstance(template, str) else None


def _max_length(value: object) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < NO_LIMIT:
        return int(value)
    return None
