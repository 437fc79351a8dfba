"""Task builders, one per task name: rows and a tokenizer in; the task and the model config it needs out."""

from . import causal, generation, pretraining, understanding
from .builder import NEEDS_DECODER, NEEDS_ENCODER, NEEDS_ENCODER_DECODER, BuiltTask, TaskBuilder, special_ids

BUILDERS = {
    "translate": TaskBuilder(generation.build_translate, NEEDS_ENCODER_DECODER, frame="eos"),
    "denoise": TaskBuilder(generation.build_denoise, NEEDS_ENCODER_DECODER, frame="eos"),
    "spans": TaskBuilder(generation.build_spans, NEEDS_ENCODER_DECODER, frame="eos"),
    "causal": TaskBuilder(causal.build_causal, NEEDS_DECODER),
    "masked": TaskBuilder(pretraining.build_masked, NEEDS_ENCODER, frame="cls-sep", lower=True),
    "pretrain": TaskBuilder(pretraining.build_pretrain, NEEDS_ENCODER, frame="cls-sep", lower=True),
    "classify": TaskBuilder(understanding.build_classify, frame="cls-sep", lower=True),
    "regress": TaskBuilder(understanding.build_regress, frame="cls-sep", lower=True),
    "choose": TaskBuilder(understanding.build_choose, frame="cls-sep", lower=True),
    "embed": TaskBuilder(understanding.build_embed, frame="cls-sep", lower=True),
    "tag": TaskBuilder(understanding.build_tag, frame="cls-sep"),
    "answer": TaskBuilder(understanding.build_answer, frame="cls-sep"),
}

__all__ = ["BUILDERS", "BuiltTask", "TaskBuilder", "special_ids"]
