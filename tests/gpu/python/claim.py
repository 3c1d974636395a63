"""16 processes that come at once for a version that nobody has: one makes it. Killed while it does,
it has one successor.

    claim.py [--device cuda:0|host] [--weights FOLDER] [--small]"""

from __future__ import annotations

import argparse
import queue
import sys
import threading
from typing import Any

import common
import gpuwm
from common import Worker, check, row, tell

PROCESSES = 16
WAIT_S = 120


def worker(device: str, name: str, width: str, layers: str) -> None:
    import torch

    def make() -> Any:
        """Only the elected one: it tells, and is told to go on."""
        tell(event="building")
        sys.stdin.readline()
        torch.manual_seed(5)
        return common.decoder(int(width), int(layers)).to(common.torch_device(device))

    on = common.gpuwm_device(device)
    torch.zeros(1, device=common.torch_device(device))
    tell(event="started")
    sys.stdin.readline()
    mapping = gpuwm.obtain(name, make, mode="auto", device=on)
    ids = common.inputs(device)
    model = common.bound_decoder(mapping, int(width), int(layers))
    with torch.inference_mode():
        tell(event="answered", answer=common.digest(model(ids)), id=mapping.version.id)
    sys.stdin.read()


class Race:
    """Its workers, and what they tell, in the order of arrival."""

    def __init__(self, name: str, count: int, device: str, width: int, layers: int) -> None:
        self.name = name
        self.told: queue.Queue[tuple[int, dict[str, Any]]] = queue.Queue()
        self.workers = [Worker(device, name, str(width), str(layers)) for _ in range(count)]
        for number in range(count):
            threading.Thread(target=self._listen, args=(number,), daemon=True).start()
        self.until("started", count)

    def _listen(self, number: int) -> None:
        while "error" not in (told := self.workers[number].told()):
            self.told.put((number, told))
        self.told.put((number, told))

    def next(self) -> tuple[int, dict[str, Any]]:
        return self.told.get(timeout=WAIT_S)

    def until(self, event: str, count: int) -> list[tuple[int, dict[str, Any]]]:
        """That many of these; anything else is a failure."""
        found = [self.next() for _ in range(count)]
        others = [told for _, told in found if told.get("event") != event]
        check(not others, f"{count} told {event!r} {others or ''}")
        return found

    def go(self) -> None:
        for each in self.workers:
            each.say("go")

    def finish(self, builder: int, killed: int) -> None:
        """The builder makes it; what all answered."""
        left = len(self.workers) - killed
        admin = common.admin()
        waits = common.eventually(lambda: admin.status()["waiting"] == left - 1, 20)
        check(waits, "the others wait")
        self.workers[builder].say("build")
        found = self.until("answered", left)
        row("loads, attaches", 1, left - 1)
        check(len({told.get("id") for _, told in found}) == 1, "all have the same version")
        check(len({told.get("answer") for _, told in found}) == 1, "all answer alike")
        for each in self.workers:
            each.end()
        check(
            self.told.qsize() == left
            and all(
                told["error"].startswith("ended with 0")
                for _, told in (self.told.get() for _ in range(left))
            ),
            "nobody else built, and all ended well",
        )


def main(options: argparse.Namespace) -> None:
    width, layers, count = (64, 2, 4) if options.small else (1024, 8, PROCESSES)
    print(f"{count} processes at once", flush=True)
    race = Race("race@v1", count, options.device, width, layers)
    race.go()
    builder, _ = race.until("building", 1)[0]
    race.finish(builder, 0)
    common.retire("race@v1")

    print(f"{count} processes at once; the builder is killed", flush=True)
    race = Race("race@v2", count, options.device, width, layers)
    race.go()
    builder, _ = race.until("building", 1)[0]
    race.workers[builder].process.kill()
    found = [race.next() for _ in range(2)]  # its end, and its successor
    successors = [number for number, told in found if told.get("event") == "building"]
    check(len(successors) == 1, f"one successor {found}")
    race.finish(successors[0], 1)
    common.retire("race@v2")


if __name__ == "__main__":
    common.run(main, worker)
