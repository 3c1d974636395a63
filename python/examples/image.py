"""A module as it is after loading, published by one process and installed by others:
image.py MODEL@TAG

Whoever comes first quantises the weights. All others have the result in a moment, in the same
memory, whatever it took to make.
"""

import argparse

import torch
from torch import nn

import gpuwm
import gpuwm.image


class QuantisedLinear(nn.Module):
    """A linear layer in int8, of which a checkpoint has the weight in float32."""

    scale: torch.Tensor  # a plain attribute: no state_dict() has it

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(out, width), requires_grad=False)
        self.largest = 0.0

    def quantise(self) -> None:
        """What an engine does after loading. Twice would be wrong."""
        self.largest = self.weight.abs().max().item()
        self.scale = self.weight.abs().amax(1) / 127
        quantised = (self.weight / self.scale[:, None]).round().to(torch.int8)
        self.weight = nn.Parameter(quantised, requires_grad=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weight.to(hidden.dtype).t() * self.scale


def make() -> nn.Sequential:
    return nn.Sequential(QuantisedLinear(64, 128), nn.ReLU(), QuantisedLinear(128, 64))


parser = argparse.ArgumentParser(usage="%(prog)s MODEL@TAG")
parser.add_argument("name")
name = parser.parse_args().name
try:
    with gpuwm.empty_init():  # parameters without memory
        model = make()
    result = gpuwm.image.install(model, name)
    said = f"installed, {len(result.registered)} tensors registered"
except gpuwm.NotFound:
    model = make()
    for layer in model.modules():
        if isinstance(layer, QuantisedLinear):
            layer.quantise()
    gpuwm.image.publish(model, name)
    said = "published"

with torch.inference_mode():
    answer = model(torch.ones(1, 64)).sum()
print(f"{name} {said}: {len(gpuwm.mapping_of(model))} tensors shared, {answer:.1f}")
