"""Generation: a model and a prompt in, ids or text out.

generate, Decoding      the decode loop, an iterator of steps          loop.py
DecoderRunner           prefill, step, reorder, rollback: the model    runner.py, speculative.py, replay/
Strategy                how the next token is chosen                   sampling.py, beam_search.py, search.py
Filter, Stop            what may be chosen, and when to stop           filters.py, search.py
GenerationSettings      all of it under Hugging Face's names           settings.py, checks.py, defaults.py
Hypothesis, Answer      what comes out                                 results.py
TextGenerator           model + tokenizer + settings -> text           text.py
"""

from .beam_search import Beam
from .defaults import cache_values, decoder_of, default_settings, trained_length
from .filters import Filter, Temperature
from .loop import Decoding, generate
from .results import Answer, GenerationResult, Hypothesis, Node, SequenceId, Step, TokenBuffer
from .runner import DecoderRunner, Prompt
from .sampling import Contrastive, Greedy, Sample
from .search import EndTokens, Stop, StopStrings, Strategy
from .settings import GenerationSettings, as_tuple
from .speculative import Draft
from .text import PromptLike, TextGenerator, as_list, is_single

__all__ = [
    "generate", "Decoding", "DecoderRunner", "Prompt", "Draft", "Strategy", "Greedy", "Sample", "Beam",
    "Contrastive", "Filter", "Stop", "EndTokens", "StopStrings", "GenerationSettings", "Step",
    "SequenceId", "Node", "TokenBuffer", "Hypothesis", "GenerationResult", "Answer", "PromptLike",
    "TextGenerator",
    # for the other packages
    "cache_values", "decoder_of", "default_settings", "trained_length", "Temperature", "as_tuple",
    "as_list", "is_single",
]  # fmt: skip
