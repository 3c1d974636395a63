"""How long a result is kept, and who keeps it: release.py"""

import time

import torch
from torch import nn

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@gpuwm.builder(key="layer", ttl=600)  # after 600 s, gpuwmd keeps it only for those who have it
def layer() -> nn.Linear:
    return nn.Linear(4, 4, device=DEVICE).requires_grad_(False)


def tell(when: str) -> None:
    time.sleep(0.2)  # a thread gives a lease back, a moment after the last tensor is gone
    print(f"{when}:", [(entry.state, entry.leases) for entry in layer.info()])


model, same = layer(), layer()
tell("two objects over one memory")
del same
tell("after del")
layer.invalidate()
tell("invalidated")
new = layer()
tell("built anew")
print("the old model is as it was:", model(torch.zeros(1, 4, device=DEVICE)).shape)
del model
tell("freed, since nobody has it")
layer.invalidate_all()
