"""The lens: inspects specs, models and forward passes; returns descriptions, numbers and pictures."""

from .ablate import SUBLAYERS, AblatedPart, Value, ablate, parse_part
from .answers import AnswerChange, TopPredictions, answer_of, compare_answers
from .attention_change import AttentionChange, MovedLink, attention_changes
from .clone import shallow_clone, with_tap
from .comparison import (
    UNITS,
    Comparison,
    GeneratedTexts,
    KeptParts,
    PartChange,
    check_comparison_path,
)
from .comparison_view import (
    CAPTIONS,
    MEANINGS,
    Direction,
    HeadTable,
    cancel_sentence,
    change_sentence,
    common_beginning,
    direction,
    head_tables,
    kept_sentence,
    kind_name,
    largest_parts,
    part_name,
    percent,
    probability,
    scale_top,
    shade,
    small_number,
    texts_title,
)
from .describe import describe_positions, idle_parameters, sentence, shape
from .diff import differences
from .evaluation_page import check_evaluation_path, save_evaluation
from .frames import Frame
from .gradients import gradients
from .heads import CAVEAT, head_scores, switch
from .importance import head_importance
from .logit_lens import logit_lens
from .output_change import (
    LabelChange,
    OutputKind,
    TokenChange,
    counted_rows,
    is_by_token,
    label_changes,
    output_distance,
    token_changes,
)
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
    "Value", "ablate", "AblatedPart", "parse_part", "SUBLAYERS", "AnswerChange", "TopPredictions",
    "answer_of", "compare_answers", "describe_positions",
    "idle_parameters",
    "sentence", "shape", "differences", "Frame", "gradients", "CAVEAT", "head_scores", "switch",
    "head_importance", "logit_lens", "PositionEffects", "effects_in_model", "position_effects",
    "scheme_named", "AttentionKind", "TraceInput", "attention_addresses", "record_forward", "VIEWS",
    "statistics", "token_losses", "Token", "of_encoding", "of_ids", "trace_ids", "Branch", "Tree",
    "EvaluationView", "WorstRow", "check_evaluation_path", "save_evaluation", "routing_facts",
    "shallow_clone", "with_tap",
    "Comparison", "AttentionChange", "MovedLink", "attention_changes", "GeneratedTexts", "KeptParts",
    "PartChange", "check_comparison_path", "LabelChange", "OutputKind", "TokenChange", "counted_rows",
    "is_by_token", "UNITS",
    "CAPTIONS", "kind_name", "MEANINGS", "Direction", "HeadTable", "cancel_sentence", "change_sentence",
    "common_beginning",
    "direction", "head_tables", "kept_sentence", "largest_parts", "part_name", "percent", "probability",
    "scale_top", "shade", "small_number", "texts_title",
    "label_changes", "output_distance", "token_changes",
]  # fmt: skip
