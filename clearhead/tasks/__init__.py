"""What a model is trained for: batches, losses and scores."""

from .causal import CausalLM
from .classification import LabelledExample, TaggedExample, TextClassification, TokenClassification
from .losses import Smoothing
from .masked import BertPretraining, MaskedLM, TokenMasking
from .metrics import bleu_signature
from .question_answering import QAExample, QuestionAnswering
from .task import Batch, Better, Task
from .text_to_text import Decode, SpecialIds, TextPair, TextToText

__all__ = [
    "Task", "Batch", "Better",
    # for the other packages
    "CausalLM", "LabelledExample", "TaggedExample", "TextClassification", "TokenClassification",
    "Smoothing", "BertPretraining", "MaskedLM", "TokenMasking", "bleu_signature", "QAExample",
    "QuestionAnswering", "Decode", "SpecialIds", "TextPair", "TextToText",
]  # fmt: skip
