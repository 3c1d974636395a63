"""What it costs to get a model that is there already: benchmark.py [LAYERS [WIDTH]]

Run it twice. The second time, the first call attaches too. A model that lies in shared memory takes
next to none of the process's own memory, so compare with the copy at the end.
"""

import copy
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
WIDTH = int(sys.argv[2]) if len(sys.argv) > 2 else 1024


@gpuwm.builder(key="encoder:{layers}:{width}", ttl=600)
def encoder(layers: int, width: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, device=DEVICE)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).eval()


def own_mib() -> float:
    """Memory of this process alone: torch's on the GPU, or what is in no file on the CPU."""
    if DEVICE == "cuda":
        return torch.cuda.memory_allocated() / 2**20
    with open("/proc/self/smaps_rollup") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous")) / 1024


def measured(what: str, call: Callable[[], nn.Module]) -> nn.Module:
    before, started = own_mib(), time.perf_counter()
    made = call()
    milliseconds = (time.perf_counter() - started) * 1000
    print(f"{what}: {milliseconds:.1f} ms, {own_mib() - before:+.1f} MiB")
    return made


def traced() -> nn.Module:
    """The call on a thread: its phases, and how long each took."""
    started, phases = time.perf_counter(), dict[str, float]()
    future = encoder.submit(LAYERS, WIDTH)
    while not future.done():
        phases[future.progress.phase] = (time.perf_counter() - started) * 1000
        time.sleep(0.0005)
    print("ends of phases:", ", ".join(f"{name} {end:.1f} ms" for name, end in phases.items()))
    return future.result()


model = measured("first call", traced)
again = measured("second call", lambda: encoder(LAYERS, WIDTH))
private = measured("a copy of one's own", lambda: copy.deepcopy(model))
size = sum(each.nbytes for each in model.parameters()) / 2**20
with torch.inference_mode():
    answer = again(torch.zeros(1, 16, WIDTH, device=DEVICE))
print(f"{size:.1f} MiB of weights on {answer.device}")
