"""Models are built on threads while the program goes on: tasks.py"""

import asyncio
import time

import torch
from torch import nn

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@gpuwm.builder(key="slow:{name}", ttl=600)
def slow(name: str) -> nn.Linear:
    if name == "missing":
        raise FileNotFoundError(f"there is no model {name!r}")
    time.sleep(0.5)
    return nn.Linear(8, 4, device=DEVICE).eval()


def on_threads() -> None:
    """`submit` returns a concurrent.futures.Future, which also has the progress of the build."""
    future = slow.submit("encoder")
    while not future.done():
        print("encoder:", future.progress.phase)
        time.sleep(0.2)
    print("encoder has", sum(each.numel() for each in future.result().parameters()), "values")
    print("missing:", slow.submit("missing").exception(60))


async def with_asyncio() -> None:
    """asyncio waits for such futures without polling."""
    names = ("encoder", "decoder")
    models = await asyncio.gather(*(asyncio.wrap_future(slow.submit(name)) for name in names))
    for name, model in zip(names, models, strict=True):
        answer = model(torch.ones(1, 8, device=DEVICE))
        print(name, "answers", tuple(answer.shape))


on_threads()
asyncio.run(with_asyncio())
