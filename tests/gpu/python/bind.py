"""How long it takes to bind 1,000 parameters after attaching.

bind.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import pathlib
import time

import common
import gpuwm
from common import check, row

REF = "thousand@v1"
PARAMETERS = 1000
ROUNDS = 20
GOAL_MS = 20


def main(options: argparse.Namespace) -> None:
    import torch
    from safetensors.torch import save_file
    from torch import nn

    def make() -> nn.Module:
        return nn.Sequential(*(nn.Linear(64, 64) for _ in range(PARAMETERS // 2)))

    folder = pathlib.Path(options.weights, "thousand")
    folder.mkdir(exist_ok=True)
    ordinary = make()
    save_file(ordinary.state_dict(), folder / "model.safetensors")
    common.retire(REF)
    common.load(folder, REF, options.device)
    on = common.torch_device(options.device)
    torch.zeros(1, device=on)
    kinds = ("a million turns of an empty loop", "attach", "build", "bind", "bind, CPU")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(1_000_000):
            pass
        times[kinds[0]].append((time.perf_counter() - begin) * 1e3)
        begin = time.perf_counter()
        mapping = gpuwm.attach(REF, device=common.gpuwm_device(options.device))
        attached = time.perf_counter()
        with gpuwm.empty_init():
            model = make()
        built = time.perf_counter()
        cpu = time.thread_time()
        result = mapping.bind(model)
        cpu = time.thread_time() - cpu
        bound = time.perf_counter()
        times["attach"].append((attached - begin) * 1e3)
        times["build"].append((built - attached) * 1e3)
        times["bind"].append((bound - built) * 1e3)
        times["bind, CPU"].append(cpu * 1e3)
        assert len(result.shared) == PARAMETERS, len(result.shared)
    x = torch.ones(1, 64)
    same = torch.allclose(model(x.to(on)).cpu(), ordinary(x), rtol=1e-2, atol=1e-3)
    row(
        f"{PARAMETERS} parameters, ms, {ROUNDS} rounds", "first", "least", "median", "max of others"
    )
    for what, values in times.items():
        row(what, values[0], min(values), common.median(values), max(values[1:]))
    check(same, "it answers as the model that was saved")
    if not options.small:  # a figure of the GPU machine
        check(common.median(times["bind"]) <= GOAL_MS, f"bound in at most {GOAL_MS} ms")
    del model, mapping
    common.retire(REF)


if __name__ == "__main__":
    common.run(main)
