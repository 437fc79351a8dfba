"""`clearhead learn`: lessons, experiments, the clinic and cards, in a terminal."""

from __future__ import annotations

from cyclopts import App

from .clinic import clinic
from .tries import attempt

learn = App(name="learn", help="Learn Transformers: lessons, experiments, broken code to mend, cards.")
learn.command(clinic)
learn.command(attempt, name="try")
