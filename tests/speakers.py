"""Tiny bundles with tokenizers, for looking inside: a reader, a writer, a translator, one with experts."""

from dataclasses import replace
from pathlib import Path

import trained
from zoo import CHOICES, pair, single

import clearhead as ch
from clearhead import nn as cn
from clearhead.bundle import Bundle
from clearhead.text.tokenizer import Tokenizer

TEXT = "The quick fox 你好 👍 jumps"


def reader(folder: Path) -> Bundle:
    return _dressed(single(depth=3), "words", folder)


def writer(folder: Path) -> Bundle:
    return _dressed(single(depth=3, causal=True), "bytes", folder)


def translator(folder: Path) -> Bundle:
    return _dressed(pair(depth=2), "unigram", folder)


def with_experts(folder: Path) -> Bundle:
    """A translator with two experts per token, each of which takes two tokens of a text."""
    return _dressed(pair(depth=2, **CHOICES["experts-full"]), "unigram", folder)


def _dressed(spec: cn.Model, kind: str, folder: Path) -> Bundle:
    words = Tokenizer.read(trained.write(folder, kind))
    assert words is not None
    # A tied head and its table change together.
    sides = ("encoder", "decoder") if isinstance(spec, cn.EncoderDecoder) else ("tower",)
    towers = {side: getattr(spec, side).edit(cn.Tokens, vocab=words.vocab) for side in sides}
    bundle = ch.build(replace(spec, head=replace(spec.head, vocab=words.vocab), **towers))
    bundle.tokenizer = words
    bundle.config = {"eos_token_id": words.vocab - 1, "decoder_start_token_id": 0}
    return bundle
