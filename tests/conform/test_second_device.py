"""Every choice of the core computes where its weights are: forward, backward and decoding elsewhere."""

import pytest
import torch
from second_device import second_device
from torch import Tensor, nn
from zoo import DECODERS, EVERY, ids, run

from clearhead.generate import Beam, Greedy, Prompt, generate
from clearhead.nn import Model, Recurrent

# torch itself keeps the lengths of packed sequences on the CPU, which the second device does not allow.
PACKED = {name for name, spec in EVERY.items() if any(isinstance(node, Recurrent) for node in spec.nodes())}


def outputs(model: nn.Module, device: torch.device | str) -> list[Tensor]:
    """The output for two padded rows, and the gradient of every parameter."""
    source, target = ids(2, 9).to(device), ids(2, 7, seed=1).to(device)
    mask = (torch.arange(7)[None] < torch.tensor([[7], [4]])).long().to(device)
    name = "tgt_mask" if model.spec.is_encoder_decoder else "mask"
    out = run(model, source, target, **{name: mask})
    out.double().square().mean().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [x.detach().cpu() for x in (out, *grads)]


@pytest.mark.parametrize("name", [name for name in EVERY if name not in PACKED])
def test_every_model_computes_on_a_second_device_as_on_the_cpu(name: str) -> None:
    here, there = (EVERY[name].build(dtype=torch.float64).eval() for _ in range(2))
    wanted = outputs(here, "cpu")
    with second_device() as device:
        found = outputs(there.to(device), device)
        there.zero_grad()
        outputs(there.train(), device)  # with dropout, and whatever is drawn in training only
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in DECODERS if f"decoder/{name}" not in PACKED])
def test_every_decoder_generates_the_same_on_a_second_device(name: str) -> None:
    def texts(model: Model, device: torch.device | str) -> list[object]:
        built = model.build(dtype=torch.float64).eval().to(device)
        prompt = Prompt(ids(2, 6), torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]]))
        runs = [generate(built, prompt, strategy=s, limit=6).finish() for s in (Greedy(), Beam(2))]
        return [[answer.text_ids for answer in row] for answers in runs for row in answers]

    wanted = texts(DECODERS[name], "cpu")
    with second_device() as device:
        assert texts(DECODERS[name], device) == wanted
