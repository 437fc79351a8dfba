"""The lens: inspects specs, models and forward passes; returns descriptions, numbers and pictures."""

from .ablate import Value, ablate
from .clone import shallow_clone, with_tap
from .compare import Comparison, TopPredictions, answer_of, compare
from .describe import describe_positions, idle_parameters, sentence, shape
from .diff import differences
from .evaluation_page import check_evaluation_path, save_evaluation
from .frames import Frame
from .gradients import gradients
from .heads import CAVEAT, head_scores, switch
from .importance import head_importance
from .logit_lens import logit_lens
from .pictures import EvaluationView, WorstRow
from .position_effects import PositionEffects, effects_in_model, position_effects, scheme_named
from .record import AttentionKind, TraceInput, attention_addresses, record_forward
from .routing import routing_facts
from .saving import VIEWS
from .statistics import statistics
from .token_loss import token_losses
from .tokens import Token, of_encoding, of_ids
from .trace import Trace, open_trace, trace_ids
from .tree import Branch, Tree

__all__ = [
    "Trace", "open_trace",
    # for the other packages
    "Value", "ablate", "Comparison", "TopPredictions", "answer_of", "compare", "describe_positions",
    "idle_parameters",
    "sentence", "shape", "differences", "Frame", "gradients", "CAVEAT", "head_scores", "switch",
    "head_importance", "logit_lens", "PositionEffects", "effects_in_model", "position_effects",
    "scheme_named", "AttentionKind", "TraceInput", "attention_addresses", "record_forward", "VIEWS",
    "statistics", "token_losses", "Token", "of_encoding", "of_ids", "trace_ids", "Branch", "Tree",
    "EvaluationView", "WorstRow", "check_evaluation_path", "save_evaluation", "routing_facts",
    "shallow_clone", "with_tap",
]  # fmt: skip
