"""Shared weights are read-only, and each process trains an adapter of its own: read_only.py"""

import concurrent.futures
import multiprocessing

import torch
from torch import nn

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Adapted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.adapter = nn.Linear(4, 4)


@gpuwm.builder(key="zeros", private=["adapter.*"], ttl=600)
def adapted() -> Adapted:
    model = Adapted().to(DEVICE)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    return model


def sums(model: Adapted) -> tuple[float, float]:
    return model.base.weight.sum().item(), model.adapter.weight.sum().item()


def look() -> tuple[float, float]:
    """What another process has."""
    return sums(adapted())


if __name__ == "__main__":
    model = adapted()
    with torch.no_grad():
        model.adapter.weight.add_(1)
        try:
            model.base.weight.add_(1)
        except gpuwm.WriteError as error:
            print("WriteError:", error)
    print("here:", *sums(model))

    spawn = multiprocessing.get_context("spawn")  # CUDA does not work after a fork
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as executor:
        print("in another process:", *executor.submit(look).result())
