"""`clearhead look run RUN [curves|gradients|loss]`: what a run did, and what it would do next."""

from __future__ import annotations

from pathlib import Path

from ...bundle import load
from ...errors import InputError
from ...lens import gradients as norms
from ...lens import token_losses
from ...lens.pictures import curves as curve_picture
from ...lens.pictures import gradient_strip
from ...recipes import SETTINGS_FILE, PreparedRun, load_run, prepare
from ...train import METRICS_FILE, OptimizerStep, hidden_size, read_log
from ..console import OUT, print_json, table


def show_curves(folder: str, save: Path | None, *, json: bool) -> None:
    records = read_log(folder) if Path(folder, METRICS_FILE).is_file() else []
    if not records:
        raise InputError(f"{folder} has no metrics.jsonl; clearhead train --out creates a run folder")
    path = curve_picture(records, str(folder)).save(save) if save is not None else None
    steps = [r for r in records if "grad_norm" in r]
    validations = [r for r in records if r.get("split") == "valid"]
    if json:
        print_json({"steps": steps, "valid": validations, "saved": path})
        return
    rows = table("step", "loss", "|g|", "lr", "tokens/s", right=(0, 1, 2, 3, 4))
    every = max(1, -(-len(steps) // 12))
    for r in [*steps[::every], *steps[-1:]]:
        speed = r.get("speed", {}).get("tokens_per_second", 0)
        rows.add_row(
            f"{r['step']:,}", f"{r['loss']:.4g}", f"{r['grad_norm']:.3g}", f"{r['lr']:.2e}", f"{speed:,.0f}"
        )
    OUT.print(rows)
    for r in validations:
        scores = " ".join(f"{name} {value:.4g}" for name, value in r["scores"].items())
        OUT.print(f"validation at step {r['step']:,}: {scores}", markup=False)
    OUT.print(f"saved {path}" if path else "plot them with --save curves.png", style=None if path else "dim")


def show_gradients(folder: str, save: Path | None, *, json: bool) -> None:
    """The gradient of the run's first batch at its current weights, as training would compute it."""
    prepared = _prepare_run(folder)
    bundle, training = load(folder), prepared.run.train
    update = OptimizerStep(bundle.model.train(), prepared.task, training, hidden_size(bundle.spec))
    measured = update.compute_gradients(1, 1.0, lambda: False)
    grads = norms(bundle.model)
    loss = float("nan") if measured is None else measured.loss
    path = gradient_strip(grads, f"{folder}: gradient norms").save(save) if save is not None else None
    if json:
        marks = {name: grads.mark(name) for name in grads.layers}
        print_json({
            "loss": loss, "total": grads.total, "clip": training.clip, "layers": grads.layers,
            "marks": {name: mark for name, mark in marks.items() if mark}, "parameters": grads.parameters,
            "saved": path,
        })  # fmt: skip
        return
    rows = table("layer", "norm", "", "", right=(1,), no_wrap=(0,))
    largest = max(grads.layers.values())
    for name, norm in grads.layers.items():
        mark = grads.mark(name)
        bar = "█" * max(1, round(30 * norm / largest)) if norm else ""
        rows.add_row(name, f"{norm:.3g}", bar, f"[red]{mark}[/]" if mark else "")
    OUT.print(rows)
    clipped = (
        f", clipped to {training.clip}" if training.clip is not None and grads.total > training.clip else ""
    )
    OUT.print(f"total {grads.total:.4g}{clipped} · loss {loss:.4g}")
    largest_names = sorted(grads.parameters, key=lambda name: -grads.parameters[name])[:5]
    OUT.print("largest: " + ", ".join(f"{name} {grads.parameters[name]:.3g}" for name in largest_names))
    OUT.print(f"saved {path}" if path else "plot it with --save gradients.png", style=None if path else "dim")


def show_loss(folder: str, save: Path | None, *, json: bool) -> None:
    """The first row of the run's first batch: inputs, targets, and the loss of each token."""
    if save is not None:
        raise InputError("loss by token is shown in the terminal or as --json; there is no picture of it")
    prepared, bundle = _prepare_run(folder), load(folder)
    task = prepared.task
    losses = token_losses(task.batch(1, 0), lambda batch: task.loss(bundle.model, batch), bundle.tokenizer)
    if json:
        print_json(
            [
                {
                    "token": token_loss.token.label,
                    "id": token_loss.token.id,
                    "wanted": None if token_loss.target is None else token_loss.target.label,
                    "loss": token_loss.loss,
                }
                for token_loss in losses
            ]
        )
        return
    rows = table("input", "target", "loss", "", right=(2,))
    for token_loss in losses:
        if token_loss.target is None or token_loss.loss is None:
            rows.add_row(f"[dim]{_escape(token_loss.token.label)}[/]", "[dim]not learned[/]", "", "")
        else:
            bar = "█" * min(round(4 * token_loss.loss), 40)
            rows.add_row(
                _escape(token_loss.token.label),
                _escape(token_loss.target.label),
                f"{token_loss.loss:.3f}",
                bar,
            )
    OUT.print(rows)
    learned = [token_loss.loss for token_loss in losses if token_loss.loss is not None]
    OUT.print(f"{len(learned)} of {len(losses)} tokens carry loss, {sum(learned):.4g} in all")


def _prepare_run(folder: str) -> PreparedRun:
    path = Path(folder) / SETTINGS_FILE
    if not path.is_file():
        raise InputError(
            f"{folder} is not a run folder: it has no {SETTINGS_FILE}; clearhead train --out creates one"
        )
    return prepare(load_run(str(path)))


def _escape(label: str) -> str:
    return label.replace("[", "\\[")
