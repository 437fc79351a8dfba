"""Recipes: a name, a file and a few settings in; a bundle, a task and a trainer's settings out."""

from .prepare import Prepared, prepare
from .settings import RECIPES, Run, changed, load_run

__all__ = ["RECIPES", "Prepared", "Run", "changed", "load_run", "prepare"]
