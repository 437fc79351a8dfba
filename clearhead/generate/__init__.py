"""Generating: a model and a beginning in, ids out. Generators deal in ids, never in text.

Speaker     a model in the middle of a run           speaker.py
Strategy    how the next token is chosen             strategies.py, beams.py
Filter      what may be chosen                       filters.py
Stop        when a text has ended                    stops.py
generate    the loop, an iterator of steps           loop.py
"""

from .beams import Beam
from .loop import Decoding, generate
from .records import Hypothesis, Node, Step
from .speaker import Prompt
from .stops import EndTokens, StopStrings
from .strategies import Greedy, Sample

__all__ = [
    "generate", "Decoding", "Prompt", "Step", "Hypothesis", "Node",
    "Greedy", "Sample", "Beam",
    "EndTokens", "StopStrings",
]  # fmt: skip
