"""A worker process scales tensors that are sent to it, and sends the results back: pass_tensors.py

Each tensor is written into shared memory once. What goes through the queues is a reference.
"""

from typing import Any

import torch
import torch.multiprocessing

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def scale(tasks: Any, answers: Any) -> None:
    """The worker. A tensor is freed when no process has it, so the worker keeps what it sent until
    the next task comes."""
    for tensor, factor in iter(tasks.get, None):
        scaled = gpuwm.share(tensor * factor)
        answers.put(scaled)


if __name__ == "__main__":
    context = torch.multiprocessing.get_context("spawn")
    tasks, answers = context.Queue(), context.Queue()
    worker = context.Process(target=scale, args=(tasks, answers))
    worker.start()
    tensor = gpuwm.share(torch.arange(4.0, device=DEVICE))
    for factor in (2, 10):
        tasks.put((tensor, factor))
        print("times", factor, "is", answers.get(timeout=60).tolist())
    tasks.put(None)
    worker.join()
