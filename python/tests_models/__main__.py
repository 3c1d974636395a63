"""Publishes every model of a library in one process, and binds it in another one:

python -m tests_models transformers [--piece 1/4] [--only NAME] [--into FILE] [--jobs N]

Prints a line of JSON for each model, and appends it to FILE. Models that FILE has are not done
again. The rule that made a model the last time (found/LIBRARY.jsonl has it) is tried first; to
look for a better one, delete the model's row there. Exits with 1 if a model differs, fails, or ends
a process, and if docs/models.md has it as equal and it was not equal now."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import pathlib
import queue
import sys
import threading
from typing import Any

from conftest import running

from . import table
from .child import Child, Died

PUBLISH_SECONDS = 120  # of a processor, for the slowest models; most take two
BIND_SECONDS = 60
JOBS = 2  # as many as CI has processors
WRONG = ("differs", "failed", "died")


class Sweep:
    """What the threads share: the names that are left, and the rows that are done."""

    def __init__(self, library: str, names: list[str], into: pathlib.Path | None) -> None:
        self.library, self.into = library, into
        self.counts: collections.Counter[str] = collections.Counter()
        self.worse: list[str] = []
        self.seconds = 0.0  # of a processor, for all rows
        self._was = {row["name"]: row for row in table.rows(library)}
        self._lock = threading.Lock()
        self._left: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in names:
            self._left.put(name)

    def work(self, number: int) -> None:
        """Goes on until no name is left, with two processes of its own."""
        publisher, worker = Child(self.library), Child(self.library)
        for index in range(sys.maxsize):
            try:
                name = self._left.get_nowait()
            except queue.Empty:
                break
            self._note(self._row(name, publisher, worker, f"sweep{number}@v{index}"))
        publisher.end()
        worker.end()

    def _row(self, name: str, publisher: Child, worker: Child, ref: str) -> dict[str, Any]:
        before = publisher.seconds + worker.seconds
        row: dict[str, Any] = {"library": self.library, "name": name}
        known = self._was.get(name)
        step = "publish"
        try:
            order = "publish", self.library, name, ref, known
            report, stored = publisher.call(PUBLISH_SECONDS, *order)
            if stored:
                step = "bind"
                report = worker.call(BIND_SECONDS, "bind", self.library, ref, stored)
            row.update(dataclasses.asdict(report))
        except Died as error:
            row.update(outcome="died", words=f"{step}: {error}")
        row["seconds"] = round(publisher.seconds + worker.seconds - before, 1)
        return row

    def _note(self, row: dict[str, Any]) -> None:
        with self._lock:
            self.counts[row["outcome"]] += 1
            self.seconds += row["seconds"]
            was = self._was.get(row["name"], {}).get("outcome")
            was_equal = was == "equal" != row["outcome"]
            if row["outcome"] in WRONG or was_equal:
                self.worse.append(f"{row['name']}: {row['outcome']}: {row.get('words')}")
            line = json.dumps(row)
            print(line, flush=True)
            if self.into:
                with self.into.open("a") as file:
                    print(line, file=file)


def _names(chosen: argparse.Namespace) -> list[str]:
    """Of this piece, without those that are done."""
    child = Child(chosen.library)
    names = chosen.only or child.call(PUBLISH_SECONDS, "names", chosen.library, chosen.files)
    child.end()
    done = set()
    if chosen.into and chosen.into.exists():
        rows = map(json.loads, chosen.into.read_text().splitlines())
        done = {row["name"] for row in rows if row["outcome"] != "untried"}
    number, of = map(int, chosen.piece.split("/"))
    return [name for name in names[number - 1 :: of] if name not in done]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests_models")
    parser.add_argument("library", choices=("transformers", "timm", "diffusers"))
    parser.add_argument("--piece", default="1/1", help="this part of the names")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--files", action="store_true", help="timm: one model of each file")
    parser.add_argument("--into", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, default=JOBS)
    chosen = parser.parse_args()
    with running():  # before the children, who find it in the environment
        sweep = Sweep(chosen.library, _names(chosen), chosen.into)
        threads = [threading.Thread(target=sweep.work, args=(n,)) for n in range(chosen.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sweep.counts.most_common())
    print(f"{counts}; {sweep.seconds:.0f} s of a processor")
    for line in sweep.worse:
        print(line)
    return 1 if sweep.worse else 0


if __name__ == "__main__":
    sys.exit(main())
