"""Training of vocabularies: texts in, a model of the `tokenizers` library out, the same every time.

The library counts words in tables with a random order. Its BPE does not depend on it; for the others, what
depends on it is fixed here: the order in which pieces get their ids, and the last digits of scores.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

UNK = "<unk>"
EMPTY = models.WordLevel({UNK: 0}, unk_token=UNK)
SCORE_STEP = 1e-4  # step between the scores of letters that the library keeps only for coverage


def learn_vocabulary(
    kind: str, engine: Engine, texts: Sequence[str], specials: list[str], alphabet: list[str], vocab: int
) -> models.Model:
    """`engine` cleans and splits the texts."""
    if kind == "chars":
        words = [*specials, *alphabet[: vocab - len(specials)]]
        return models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNK)
    if kind == "wordpiece":
        return _wordpiece(engine, texts, specials, alphabet, vocab)
    if kind == "unigram":
        return _unigram(engine, texts, specials, vocab)
    letters = pre_tokenizers.ByteLevel.alphabet() if kind == "byte-bpe" else ["▁", *alphabet]
    engine.model = models.BPE() if kind == "byte-bpe" else models.BPE(unk_token=UNK)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=specials,
        initial_alphabet=sorted(letters),
        limit_alphabet=len(letters),
        show_progress=False,
    )
    engine.train_from_iterator(texts, trainer)
    return engine.model


def _wordpiece(
    engine: Engine, texts: Sequence[str], specials: list[str], alphabet: list[str], vocab: int
) -> models.Model:
    """Letters inside of words are numbered before training; otherwise their order would be random."""
    splitter, cleaner = engine.pre_tokenizer, engine.normalizer
    assert splitter is not None and cleaner is not None
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(cleaner.normalize_str(text))}
    inner = sorted({letter for word in words for letter in word[1:]} & set(alphabet))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=[*specials, *(f"##{letter}" for letter in inner)],
        initial_alphabet=sorted(alphabet),
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner = Engine(models.WordPiece(unk_token=UNK))
    learner.normalizer, learner.pre_tokenizer = cleaner, splitter
    learner.train_from_iterator(texts, trainer)
    return models.WordPiece(_model_data(learner)["vocab"], unk_token=UNK)


def _unigram(engine: Engine, texts: Sequence[str], specials: list[str], vocab: int) -> models.Model:
    engine.model = models.Unigram()
    trainer = trainers.UnigramTrainer(
        vocab_size=vocab, special_tokens=specials, unk_token=UNK, show_progress=False
    )
    engine.train_from_iterator(texts, trainer)
    pieces = [(piece, score) for piece, score in _model_data(engine)["vocab"] if piece not in specials]
    lowest = min(score for _, score in pieces)
    letters = sum(len(piece) == 1 for piece, _ in pieces)
    threshold = lowest + SCORE_STEP * (letters + 1)  # of the letters below this none is better than another
    stable = [
        (piece, round(lowest if len(piece) == 1 and score <= threshold else score, 4))
        for piece, score in pieces
    ]
    stable.sort(key=lambda item: (-item[1], item[0]))
    return models.Unigram([*((name, 0.0) for name in specials), *stable], unk_id=specials.index(UNK))


def _model_data(engine: Engine) -> Any:
    return json.loads(engine.to_str())["model"]
