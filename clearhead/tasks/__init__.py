"""What a model is trained for: batches, losses and scores."""

from .causal import CausalLM
from .classification import (
    LabelledExample,
    MultiLabelClassification,
    MultiLabelExample,
    Regression,
    ScoredExample,
    TaggedExample,
    TextClassification,
    TokenClassification,
)
from .losses import Smoothing
from .masked import BertPretraining, MaskedLM, TokenMasking
from .metrics import bleu_signature
from .multiple_choice import ChoiceExample, MultipleChoice
from .outcomes import ClassScores, Evaluation, ExampleOutcome
from .question_answering import QAExample, QuestionAnswering
from .similarity import SimilarityExample, TextSimilarity
from .task import Batch, Better, Task, input_tokens, model_device, on_device
from .text_to_text import Corrupt, Decode, SpecialIds, TextPair, TextToText

__all__ = [
    "Task", "Batch", "Better",
    # for the other packages
    "CausalLM", "LabelledExample", "MultiLabelClassification", "MultiLabelExample", "Regression",
    "ScoredExample", "TaggedExample", "TextClassification", "TokenClassification", "Smoothing",
    "BertPretraining", "MaskedLM", "TokenMasking", "bleu_signature", "ChoiceExample", "MultipleChoice",
    "QAExample", "QuestionAnswering", "SimilarityExample", "TextSimilarity", "Corrupt", "Decode",
    "SpecialIds", "TextPair", "TextToText", "input_tokens", "model_device", "on_device",
    "ClassScores", "Evaluation", "ExampleOutcome",
]  # fmt: skip
