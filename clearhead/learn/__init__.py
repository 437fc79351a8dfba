"""Learning: lessons to read, experiments to run, broken code to fix, cards; Chinese and English."""

from .cards import draw_cards
from .clinic import Exercise, ExerciseKind, Verdict, check_exercise, exercises, find_exercise, write_exercise
from .language import Lang, language, pick
from .lessons import LEVELS, Lesson, find_lesson, lessons, neighbours
from .lines import find_walk, walks
from .ordering import OrderPuzzle, PuzzleStep, example, find_puzzle, first_fault, parse_order, puzzles

__all__ = [
    "draw_cards", "Exercise", "ExerciseKind", "Verdict", "check_exercise", "exercises", "find_exercise",
    "write_exercise", "Lang", "language", "pick", "LEVELS", "Lesson", "find_lesson", "lessons",
    "neighbours", "find_walk", "walks", "OrderPuzzle", "PuzzleStep", "example", "find_puzzle",
    "first_fault", "parse_order", "puzzles",
]  # fmt: skip
