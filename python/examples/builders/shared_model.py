"""A model and a table that all processes share: shared_model.py [OUTPUTS]

Run it as often as you like, also at the same time: the first process builds, all others attach.
With GPUWM_MODE=local, the same script needs no gpuwmd, and builds for itself.
"""

import sys

import torch
from torch import nn

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@gpuwm.builder(key="linear:{inputs}:{outputs}", ttl=600)
def linear(inputs: int = 16, outputs: int = 4) -> nn.Linear:
    print(f"builds a model of {inputs} x {outputs}")
    layer = nn.Linear(inputs, outputs, device=DEVICE)
    nn.init.constant_(layer.weight, 0.75)
    nn.init.zeros_(layer.bias)
    return layer.eval()


@gpuwm.builder(ttl=600)  # without a key, all arguments count
def table(rows: int = 8) -> torch.Tensor:
    print(f"builds a table of {rows} rows")
    return torch.arange(float(rows), device=DEVICE)


model = linear(outputs=int(sys.argv[1]) if len(sys.argv) > 1 else 4)
with torch.inference_mode():
    print("the model answers", model(torch.ones(1, 16, device=DEVICE)).tolist())
print("the table has the sum", table().sum().item())
for entry in linear.info():
    print(f"{linear.model}@{entry.tag}: {entry.state}")
