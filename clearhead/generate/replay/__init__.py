"""Capture and replay of decode steps, in the words of CUDA graphs: record a step once, re-issue its calls.

    loop -> runner.step -> model              with replay off: every token runs the model's Python code
    loop -> runner.step -> replayed step      with replay on, from the fourth token of a long run

The output is bit-identical; of a prepared model it may differ in the last digits, because fused operators
replace small calls (see fusion.py; the environment variable CLEARHEAD_FUSED=0 leaves them out). A breakpoint
or a print inside the model is not reached by a replayed step: set CLEARHEAD_REPLAY=0 in the environment,
or pass `replay=False` to `generate`. Replay is disabled when a forward hook is registered.
"""

from .replayer import MIN_STEPS, StepReplayer, is_replayable, replay_enabled

__all__ = ["MIN_STEPS", "StepReplayer", "is_replayable", "replay_enabled"]
