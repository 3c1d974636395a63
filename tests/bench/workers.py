"""compare.py --count workers: how long a worker waits for its weights, with each loader and with gpuwm.

Each loader runs in a process of its own, and the processes run in turns. A time counts from the exec of the
process until it has read every byte once: a loader that only maps files has done nothing before. gpuwm loads once a
round; then a worker attaches, and a second one beside it.
"""

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

import peers
import plot

PARTS = ("imports", "context", "load", "first touch")
# So much of the files may be left in the page cache for them to count as cold: a directory's and a header's pages.
COLD_SHARE = 0.02
LOAD = "gpuwm: load, once for all workers"
FIRST, SECOND = "gpuwm: a worker attaches", "gpuwm: a second worker attaches"


# ---- what can be measured ----


def knows_model(folder):
    """Whether transformers has the model's class. It is asked in a process of its own, whose imports nobody else has."""
    ask = "import sys, transformers; transformers.AutoConfig.from_pretrained(sys.argv[1])"
    return subprocess.run([sys.executable, "-c", ask, folder], capture_output=True, check=False).returncode == 0


def find(names, files, gpu):
    """(names that can be measured, [{name, label, why, command}] of the others)."""
    every = {**peers.PEERS, "transformers": peers.OTHERS["transformers"]}
    wanted = names if names is not None else list(every)
    able, skipped = [], []
    for name in wanted:
        peer = every[name]
        package = peer.package or peer.module.split(".")[0]
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


def versions(names):
    found = {}
    for name in names:
        peer = {**peers.PEERS, **peers.OTHERS}[name]
        package = peer.package or peer.module.split(".")[0]
        found[package] = importlib.metadata.version(package)
    return {"torch": importlib.metadata.version("torch"), **found}


# ---- the page cache ----


def cached_bytes(path):
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
    """Brings the files into the state that each measurement begins with, and notes how far that went."""

    def __init__(self, files, cold, warm):
        self.files, self.cold, self.warm = files, cold, warm
        self.size = sum(os.path.getsize(path) for path in files)
        self.shares = []

    def prepare(self):
        if self.cold:
            for path in self.files:
                with open(path, "rb") as file:
                    os.fdatasync(file.fileno())  # what is not written yet can't be dropped
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        elif sum(map(cached_bytes, self.files)) < self.size:  # reading 15 GiB again takes seconds
            self.warm(self.files)
        self.shares.append(sum(map(cached_bytes, self.files)) / self.size if self.size else 0.0)

    def said(self):
        if not self.cold:
            return f"warm: {min(self.shares):.0%} of the bytes were in the page cache, at least"
        worst = max(self.shares)
        if worst <= COLD_SHARE:
            return "cold: dropped from the page cache by posix_fadvise before each loader"
        return f"NOT COLD: up to {worst:.0%} stayed in the page cache; its file system keeps them, as tmpfs does"


# ---- measuring ----


def run(process, ref=""):
    """One process until it has read every byte: {part: seconds}, bytes."""
    _, imports, context, load = process.start_and_load(ref)
    loaded = process.began + imports + context + load
    answer = process.ask("touch")
    parts = dict(zip(PARTS, (imports, context, load, answer["ended"] - loaded), strict=True))
    return parts, answer["bytes"]


class Rows:
    """By label: the rounds, each {part: seconds}, and the bytes that were read."""

    def __init__(self, rounds):
        self.wanted = rounds
        self.rounds, self.bytes = {}, {}

    def add(self, label, parts, size):
        self.rounds.setdefault(label, []).append(parts)
        self.bytes[label] = size
        number = len(self.rounds[label])
        took = sum(parts.values())
        print(f"round {number} of {self.wanted}: {label}: {took:.1f} s", file=sys.stderr, flush=True)

    def list(self):
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
                    "parts": {name: statistics.median(parts[name] for parts in rounds) for name in rounds[0]},
                    "bytes": self.bytes[label],
                    "rounds": rounds,
                }
            )
        return rows


def measure(names, start, gpuwm, source, rounds, cache):
    """start: makes the process of a loader, by its name."""
    rows = Rows(rounds)
    for number in range(rounds):
        ref = f"compare-workers@{number}"
        for name in names:
            cache.prepare()
            process = start(name)
            rows.add({**peers.PEERS, **peers.OTHERS}[name].label, *run(process))
            process.end()
        cache.prepare()
        seconds, _ = gpuwm.load(source, ref)
        rows.add(LOAD, {"load": seconds}, cache.size)
        first, second = start("attach"), None
        rows.add(FIRST, *run(first, ref))
        second = start("attach")
        rows.add(SECOND, *run(second, ref))
        for process in (first, second):
            process.end()
        gpuwm.retire(ref)
    return rows.list()


# ---- reporting ----


def report(rows, skipped, cache):
    print(cache.said())
    print("seconds from a process's start until it has read every byte once; of them imports, context, load,")
    print("first touch; least and most; rounds")
    for row in rows:
        parts = "".join(f" {row['parts'].get(name, 0.0):>7.3f}" for name in PARTS)
        print(
            f"  {row['label']:<44} {row['seconds']:>8.3f} {parts}  {row['least']:>8.3f} {row['most']:>8.3f}"
            f" {len(row['rounds']):>3}"
        )
    for one in skipped:
        print(f"  skipped: {one['label']} {one['why']}{': ' + one['command'] if one['command'] else ''}")


def write(arguments, files, names, rows, skipped, cache):
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
