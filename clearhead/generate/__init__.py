"""Generating: a model and a beginning in, ids out. Generators deal in ids, never in text.

Prompt, Speaker   a model in the middle of a run            speaker.py, past.py, speculate.py
Strategy          how the next token is chosen              rows.py, contrastive.py, beams.py
Filter            what may be chosen                        filters.py, shaping.py
Stop              when a text has ended                     stops.py
generate          the loop, an iterator of steps            loop.py
Settings          all of it under Hugging Face's names      settings.py
"""

from .beams import Beam
from .contrastive import Contrastive
from .filters import Filter
from .loop import Decoding, generate
from .records import Hypothesis, Node, Row, Step
from .rows import Greedy, Sample
from .settings import Settings
from .speaker import Prompt
from .speculate import Draft
from .stops import EndTokens, Stop, StopStrings

__all__ = [
    "generate", "Decoding", "Prompt", "Draft", "Step", "Row", "Hypothesis", "Node",
    "Greedy", "Sample", "Beam", "Contrastive", "Filter", "Stop", "EndTokens", "StopStrings", "Settings",
]  # fmt: skip
