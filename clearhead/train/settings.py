"""Training settings: a frozen value that round-trips through JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import SpecError, quoted
from ..spec import Positive, Rate, Spec
from .optim import AdamW, Optimizer
from .schedule import Constant, Cosine, LinearDecay, Noam, Schedule

Precision = Literal["float32", "bfloat16", "float16"]
MAY_CHANGE_ON_RESUME = ("time_budget", "keep", "device")  # no number depends on these, but for rounding
MAY_GROW_ON_RESUME = ("steps", "patience")  # a finished run continues if one of these is raised


@dataclass(frozen=True, kw_only=True)
class Training(Spec):
    """How to train. With the task and the initial weights it determines every number of a run."""

    steps: int  # optimizer steps in all
    seed: int = 0  # of the initial weights, the order of rows, dropout and samples
    lr: Positive | None = None  # peak learning rate; none: 3e-4 (Noam derives its rate from the width)
    optimizer: Optimizer = field(default_factory=AdamW)  # adamw, adam or sgd
    # learning rate by step: linear, cosine, constant, inverse_sqrt or noam
    schedule: Schedule = field(default_factory=Constant)
    clip: Positive | None = 1.0  # global gradient norm to clip at
    micro: int = 1  # micro-batches per step (gradient accumulation)
    precision: Precision = "float32"  # of the forward and backward pass: float32, bfloat16, float16
    ema: float | None = None  # decay of the exponential moving average of weights, such as 0.999
    average: int = 1  # the final weights are the mean of this many last checkpoints
    patience: int | None = None  # early stopping: validations without a better score
    save_every: int = 500  # steps between checkpoints
    valid_every: int | None = None  # steps between validations
    keep: int = 2  # checkpoints kept beside the best
    time_budget: Positive | None = None  # seconds; then it saves and stops, and can be resumed
    threads: int | None = None  # of the processor; none: torch's current number
    device: str = "auto"  # cpu, cuda, cuda:1, mps; auto: where the model is, or the best of this machine
    freeze: tuple[str, ...] = ()  # patterns of parameters that are not trained, such as tower.embed.*
    # experts: weight of the load-balancing loss, a mean over layers and micro-batches (1 = balanced)
    router_aux_loss_coef: Rate = 0.01
    # experts: weight of the z-loss, which keeps the scores of routers small, such as 0.001
    router_z_loss_coef: Rate = 0.0
    # experts with a balancing bias (DeepSeek-V3) have no load-balancing loss: how much a step moves the bias
    router_bias_update_speed: Rate = 0.001

    def check(self) -> None:
        for name in ("steps", "micro", "average", "save_every"):
            self._at_least(name, 1)
        for name in ("patience", "valid_every", "threads"):
            if getattr(self, name) is not None:
                self._at_least(name, 1)
        self._at_least("keep", 2)
        self._check_sizes()
        if self.ema is not None and not 0 < self.ema < 1:
            raise SpecError(f"Training.ema is {self.ema}; expected a number between 0 and 1, such as 0.999")
        if self.ema is not None and self.average > 1:
            raise SpecError("Training has both ema and average; they do the same thing: choose one")
        self._check_rate()

    @property
    def peak(self) -> float:
        return 3e-4 if self.lr is None else self.lr

    @property
    def validation_interval(self) -> int | None:
        """Steps between validations: `valid_every`, or a tenth of all steps where patience needs some."""
        if self.valid_every is None and self.patience is not None:
            return max(self.steps // 10, 1)
        return self.valid_every

    def rate(self, width: int, step: int) -> float:
        """The learning rate of a step, from 1, of a model of this width."""
        return self.schedule.rate(step, peak=self.peak, steps=self.steps, width=width)

    def _at_least(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise SpecError(f"Training.{name} is {quoted(getattr(self, name))}; expected {least} or more")

    def _check_sizes(self) -> None:
        """Raise for sizes that are impossible or that torch does not accept."""
        for name, most in (("steps", 10**12), ("micro", 2**16), ("threads", 1024)):
            value = getattr(self, name)
            if value is not None and value > most:
                raise SpecError(f"Training.{name} is {quoted(value)}; expected at most {most:,}")

    def _check_rate(self) -> None:
        schedule = self.schedule
        if isinstance(schedule, Noam) and self.lr is not None:
            raise SpecError(
                f"Noam computes its rate from the width; leave out lr {self.lr}, or set Noam.factor"
            )
        if isinstance(schedule, Cosine | LinearDecay):
            name = type(schedule).__name__
            if schedule.warmup_steps(self.steps) >= self.steps > 1:
                raise SpecError(
                    f"{name}.warmup is {schedule.warmup}; expected less than steps {self.steps}: "
                    f"--train.schedule.warmup 0.1"
                )
            if not 0 <= schedule.minimum <= self.peak:
                raise SpecError(f"{name}.minimum is {schedule.minimum}; expected 0 to lr {self.peak}")
