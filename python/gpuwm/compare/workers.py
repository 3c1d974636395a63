"""gpuwm.compare --count workers: how long a worker waits for its weights, with each loader and with
gpuwm.

Each loader runs in a process of its own, and the processes run in turns. A time counts from the
exec of the process until it has read every byte once: a loader that only maps files has done
nothing before. gpuwm loads once a round; then a worker attaches, and a second one beside it.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import loaders, plot

if TYPE_CHECKING:
    from .processes import Gpuwm, Process

PARTS = ("imports", "context", "load", "first touch")
# So much of the files may be left in the page cache for them to count as cold: a directory's and a
# header's pages.
COLD_SHARE = 0.02
LOAD = "gpuwm: load, once for all workers"
FIRST, SECOND = "gpuwm: a worker attaches", "gpuwm: a second worker attaches"


# ---- what can be measured ----


def knows_model(folder: str) -> bool:
    """Whether transformers has the model's class. It is asked in a process of its own, whose
    imports nobody else has."""
    ask = "import sys, transformers; transformers.AutoConfig.from_pretrained(sys.argv[1])"
    return (
        subprocess.run(
            [sys.executable, "-c", ask, folder], capture_output=True, check=False
        ).returncode
        == 0
    )


def find(
    names: list[str] | None, files: list[str], gpu: bool
) -> tuple[list[str], list[dict[str, str]]]:
    """(names that can be measured, [{name, label, why, command}] of the others)."""
    every = {**loaders.PEERS, "transformers": loaders.OTHERS["transformers"]}
    wanted = names if names is not None else list(every)
    able: list[str] = []
    skipped: list[dict[str, str]] = []
    for name in wanted:
        peer = every[name]
        package = peer.distribution()
        why = command = ""
        if not gpu and not peer.cpu:
            why = "loads to GPUs only"
        elif importlib.util.find_spec(peer.module.split(".")[0]) is None:
            why, command = "is not installed", f"pip install {package}"
        elif name == "transformers" and not knows_model(os.path.dirname(files[0])):
            why = "knows no model of these files: it needs a config.json whose model_type it has"
        if why:
            skipped.append({"name": name, "label": peer.label, "why": why, "command": command})
        else:
            able.append(name)
    return able, skipped


def versions(names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        peer = {**loaders.PEERS, **loaders.OTHERS}[name]
        package = peer.distribution()
        found[package] = importlib.metadata.version(package)
    return {"torch": importlib.metadata.version("torch"), **found}


# ---- the page cache ----


def cached_bytes(path: str) -> int:
    """How many bytes of a file lie in the page cache, by mincore(2)."""
    size = os.path.getsize(path)
    if size == 0:
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    private = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, **private) as at:
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        address = ctypes.addressof(ctypes.c_char.from_buffer(at))
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), path)
        return min(size, sum(page & 1 for page in pages) * mmap.PAGESIZE)


class PageCache:
    """Brings the files into the state that each measurement begins with, and notes how far that
    went."""

    def __init__(self, files: list[str], cold: bool, warm: Callable[[list[str]], None]) -> None:
        self.files: list[str] = files
        self.cold: bool = cold
        self.warm: Callable[[list[str]], None] = warm
        self.size: int = sum(os.path.getsize(path) for path in files)
        self.shares: list[float] = []

    def prepare(self) -> None:
        if self.cold:
            for path in self.files:
                with open(path, "rb") as file:
                    os.fdatasync(file.fileno())  # what is not written yet can't be dropped
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        elif sum(map(cached_bytes, self.files)) < self.size:  # reading 15 GiB again takes seconds
            self.warm(self.files)
        self.shares.append(sum(map(cached_bytes, self.files)) / self.size if self.size else 0.0)

    def said(self) -> str:
        if not self.cold:
            return f"warm: {min(self.shares):.0%} of the bytes were in the page cache, at least"
        worst = max(self.shares)
        if worst <= COLD_SHARE:
            return "cold: dropped from the page cache by posix_fadvise before each loader"
        return (
            f"NOT COLD: up to {worst:.0%} stayed in the page cache; its file system keeps them, as"
            " tmpfs does"
        )


# ---- measuring ----


def run(process: Process, ref: str = "") -> tuple[dict[str, float], int]:
    """One process until it has read every byte: {part: seconds}, bytes."""
    _, imports, context, load = process.start_and_load(ref)
    loaded = process.began + imports + context + load
    answer = process.ask("touch")
    parts = dict(zip(PARTS, (imports, context, load, answer["ended"] - loaded), strict=True))
    return parts, answer["bytes"]


class Rows:
    """By label: the rounds, each {part: seconds}, and the bytes that were read."""

    def __init__(self, rounds: int) -> None:
        self.wanted = rounds
        self.rounds: dict[str, list[dict[str, float]]] = {}
        self.bytes: dict[str, int] = {}

    def add(self, label: str, parts: dict[str, float], size: int) -> None:
        self.rounds.setdefault(label, []).append(parts)
        self.bytes[label] = size
        number = len(self.rounds[label])
        took = sum(parts.values())
        print(
            f"round {number} of {self.wanted}: {label}: {took:.1f} s", file=sys.stderr, flush=True
        )

    def told(self) -> Sequence[dict[str, Any]]:
        """One dict a row: medians of the parts, and of the whole."""
        rows = []
        for label, rounds in self.rounds.items():
            whole = [sum(parts.values()) for parts in rounds]
            rows.append(
                {
                    "label": label,
                    "seconds": statistics.median(whole),
                    "least": min(whole),
                    "most": max(whole),
                    "parts": {
                        name: statistics.median(parts[name] for parts in rounds)
                        for name in rounds[0]
                    },
                    "bytes": self.bytes[label],
                    "rounds": rounds,
                }
            )
        return rows


def measure(
    names: list[str],
    start: Callable[[str], Process],
    gpuwm: Gpuwm,
    source: str,
    rounds: int,
    cache: PageCache,
) -> Sequence[dict[str, Any]]:
    """start: makes the process of a loader, by its name."""
    rows = Rows(rounds)
    for number in range(rounds):
        ref = f"compare-workers@{number}"
        for name in names:
            cache.prepare()
            process = start(name)
            rows.add({**loaders.PEERS, **loaders.OTHERS}[name].label, *run(process))
            process.end()
        cache.prepare()
        seconds, _ = gpuwm.load(source, ref)
        rows.add(LOAD, {"load": seconds}, cache.size)
        first = start("attach")
        rows.add(FIRST, *run(first, ref))
        second = start("attach")
        rows.add(SECOND, *run(second, ref))
        for process in (first, second):
            process.end()
        gpuwm.retire(ref)
    return rows.told()


# ---- reporting ----


def skip_told(one: dict[str, str]) -> str:
    command = one["command"] and f": {one['command']}"
    return f"{one['label']} {one['why']}{command}"


def report(rows: Sequence[dict[str, Any]], skipped: list[dict[str, str]], cache: PageCache) -> None:
    print(cache.said())
    print(
        "seconds from a process's start until it has read every byte once; of them imports,"
        " context, load,\nfirst touch; least and most; rounds"
    )
    for row in rows:
        parts = "".join(f" {row['parts'].get(name, 0.0):>7.3f}" for name in PARTS)
        print(
            f"  {row['label']:<44} {row['seconds']:>8.3f} {parts}"
            f"  {row['least']:>8.3f} {row['most']:>8.3f} {len(row['rounds']):>3}"
        )
    for one in skipped:
        print(f"  skipped: {skip_told(one)}")


def write(
    arguments: argparse.Namespace,
    files: list[str],
    names: list[str],
    rows: Sequence[dict[str, Any]],
    skipped: list[dict[str, str]],
    cache: PageCache,
) -> None:
    facts = {
        "source": os.path.basename(os.path.normpath(arguments.source)),
        "bytes": cache.size,
        "files": len(files),
        "device": arguments.device,
        "cache": cache.said(),
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "versions": versions(names),
    }
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({**facts, "rows": rows, "skipped": skipped}, file, indent=1)
    if arguments.svg:
        what = f"{facts['source']}, {cache.size / 2**30:.2f} GiB, {arguments.device}"
        title = f"Seconds until a worker has its weights: {what}"
        with open(arguments.svg, "w", encoding="utf-8") as file:
            file.write(plot.bars(title, cache.said(), PARTS, rows))
