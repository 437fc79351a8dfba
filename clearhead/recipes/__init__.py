"""Recipes: a preset, a data file and a few settings in; a bundle, a task and training settings out."""

from .batch_preview import preview_batch, recipe_for
from .card import CARD_FILE, model_card
from .card_usage import command_line
from .evaluation import evaluate_file, evaluate_run
from .evaluation_report import EvaluationReport, RowResult
from .merge_card import MergeFacts, merge_card
from .merge_words import MERGE_WORDS, MergeWord, merge_word, method_of
from .mergekit_config import MergePlan, read_mergekit
from .methods import METHODS
from .overrides import overrides
from .prepare import PreparedRun, prepare
from .rows import read_dataset
from .settings import RECIPES, SETTINGS_FILE, RunConfig, load_run, with_overrides
from .settings_help import SettingHelp, describe_method, describe_settings
from .trained_tokens import FileCounts, TrainedTokens, count_file, trained_tokens
from .training import recipe_of_rows, run_training, train, validation_scores
from .yamlfile import read_yaml

__all__ = [
    "RECIPES", "SETTINGS_FILE", "PreparedRun", "RunConfig", "load_run", "prepare", "with_overrides",
    # for the other packages
    "overrides", "METHODS", "describe_method", "describe_settings", "SettingHelp", "read_dataset",
    "read_yaml", "run_training", "train",
    "validation_scores", "CARD_FILE", "model_card", "EvaluationReport", "RowResult", "evaluate_file",
    "evaluate_run", "preview_batch", "recipe_for", "trained_tokens", "TrainedTokens", "count_file",
    "FileCounts", "recipe_of_rows", "MERGE_WORDS", "MergeFacts", "MergePlan",
    "MergeWord", "command_line", "merge_card", "merge_word", "method_of",
    "read_mergekit",
]  # fmt: skip
