"""Makers, one per task: rows and a tokenizer in; the task, and what the model must know of it, out."""

from . import reading, speaking
from .maker import Made, Maker

MAKERS = {
    "translate": Maker(speaking.translate, frame="eos"),
    "denoise": Maker(speaking.denoise, frame="eos"),
    "spans": Maker(speaking.spans, frame="eos"),
    "causal": Maker(speaking.causal),
    "masked": Maker(reading.masked, frame="cls-sep", lower=True),
    "pretrain": Maker(reading.pretrain, frame="cls-sep", lower=True),
    "classify": Maker(reading.classify, frame="cls-sep", lower=True),
    "tag": Maker(reading.tag, frame="cls-sep"),
    "answer": Maker(reading.answer, frame="cls-sep"),
}

__all__ = ["MAKERS", "Made", "Maker"]
