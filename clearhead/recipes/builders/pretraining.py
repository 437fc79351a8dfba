"""Tasks of masked language modelling: masked words, BERT's two objectives. Rows in; a task out."""

from __future__ import annotations

from ...data import sentence_pairs, sentences
from ...errors import DataError, InputError
from ...tasks import BertPretraining, MaskedLM, TokenMasking
from ...text import Tokenizer
from ..rows import Dataset
from ..settings import RunConfig
from .builder import BuiltTask, batch_limits, common_arguments, config_of, cut_into_pieces, special_ids

CHAPTER_SENTENCES = 50


def build_masked(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    splits = {name: cut_into_pieces(tokenizer, split, run.data.length) for name, split in rows.splits.items()}
    task = MaskedLM(
        splits,
        hide=_token_masking(run, tokenizer),
        pad=special_ids(tokenizer, rows.base).pad,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "tokens", config_of(tokenizer))


def build_pretrain(run: RunConfig, rows: Dataset, tokenizer: Tokenizer, notes: list[str]) -> BuiltTask:
    """BERT's two objectives: masked words, and whether the second text follows the first."""
    splits = {}
    for split, split_rows in rows.splits.items():
        chapters = _chapters([sentences(row["text"]) for row in split_rows])
        ids = [[list(tokenizer.encode(s, specials=False).ids) for s in chapter] for chapter in chapters]
        splits[split] = sentence_pairs(ids, length=run.data.length - 3, seed=run.train.seed)
    ends = (tokenizer.cls or tokenizer.bos, tokenizer.sep or tokenizer.eos)
    if ends[0] is None or ends[1] is None:
        raise DataError(
            "the tokenizer has no tokens for the beginning and the end of a text; pretrain needs both"
        )
    task = BertPretraining(
        splits,
        hide=_token_masking(run, tokenizer),
        pad=special_ids(tokenizer, rows.base).pad,
        start=ends[0].id,
        end=ends[1].id,
        **batch_limits(run),
        **common_arguments(run, rows),
    )
    return BuiltTask(task, "pretrain", config_of(tokenizer))


def _chapters(texts: list[list[str]]) -> list[list[str]]:
    """Long texts cut into chapters. A single text gives at least four: a random second sentence
    must come from another chapter.
    """
    size = CHAPTER_SENTENCES if len(texts) > 1 else max(2, min(CHAPTER_SENTENCES, len(texts[0]) // 4))
    return [text[at : at + size] for text in texts for at in range(0, len(text), size)]


def _token_masking(run: RunConfig, tokenizer: Tokenizer) -> TokenMasking:
    if tokenizer.mask is None:
        raise InputError(
            "the tokenizer has no mask token; masked language modelling needs one, as BERT's has"
        )
    return TokenMasking(
        mask=tokenizer.mask.id,
        vocab=tokenizer.vocab,
        special=tokenizer.specials,
        masking=run.data.masking,
        seed=run.train.seed,
    )
