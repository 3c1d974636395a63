"""gpuwm.share(tensor) without a name, and the end of what it returned: the first one of a user,
whose checker makes a CUDA context, and later ones.

    share.py [--device cuda:0|host] [--small]"""

from __future__ import annotations

import argparse
import time
from typing import Any

import common
import gpuwm
from common import check, median, row

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20, "64 MiB": 64 << 20}
FIRSTS, LATER = 3, 30
GONE_S = 60  # until a checker's time is over: keep_checker of gpuwmd.conf(5), by default 5 s


def checkers() -> list[Any]:
    return [loader for loader in common.admin().status()["keeping"] if loader["checks"]]


def share_ms(device: str, size: int) -> float:
    import torch

    tensor = torch.zeros(size, dtype=torch.uint8, device=common.torch_device(device))
    if device != "host":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    tensor = gpuwm.share(tensor)
    del tensor
    return (time.perf_counter() - begin) * 1000


def first_ms(device: str, size: int) -> float:
    check(
        common.eventually(
            lambda: not checkers() and common.admin().status()["standby"], GONE_S
        ),
        "no checker stays",
    )
    return share_ms(device, size)


def main(arguments: argparse.Namespace) -> None:
    device = arguments.device
    firsts, later = (1, 3) if arguments.small else (FIRSTS, LATER)
    print(f"gpuwm.share on {device}: medians in ms")
    share_ms(device, 4 << 10)  # torch and the library begin
    row("bytes", "first", "later")
    for name, size in SIZES.items():
        first = [first_ms(device, size) for _ in range(firsts)]
        row(name, median(first), median([share_ms(device, size) for _ in range(later)]))


if __name__ == "__main__":
    common.run(main)
