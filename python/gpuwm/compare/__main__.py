"""gpuwm beside other loaders of safetensors files, on the same files in the same run, in turns.

    python -m gpuwm.compare --count workers [--device host] [--cache cold] [--json FILE]
                            [--svg FILE] SOURCE
    python -m gpuwm.compare [--socket SOCKET] [--kept-socket SOCKET] [OPTION...] SOURCE

SOURCE lies beneath a root of both gpuwmds: --socket names one without a kept context, --kept-socket
one with `[loader] keep_context = always`. Without --socket it starts a gpuwmd of its own. Ways of
counting (--count):
  workers each in a process of its own, from its exec until every byte was read once: workers.py
  warm    each loader in a process that has torch, its modules and a CUDA context already
  start   each loader in a process of its own, counted from its exec; gpuwm from gpuwmctl's
Needs torch, and the package of each loader.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import glob
import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from . import loaders, workers
from .processes import Gpuwm, Process, notes, own_gpuwmd

GOAL_COPY = 6.0  # times load_file's rate
GOAL_READY_SMALL, GOAL_READY_LARGE = 3.5, 4.5  # below 32 GiB, and from there on
GOAL_KEPT_MS = 40.0  # beside the time at the ceiling
SETTLE_S = 0.25  # while a GPU clears freed memory (30 ms for 16 GiB), copies are a tenth slower
SLOW_S = 8.0  # a loader that takes longer is measured once: the machine's time is short


def result(
    value: float, unit: str, what: str, goal: float | None = None, most: bool = False
) -> None:
    """One line, in the columns of tests/bench/lib/report.c."""
    digits = 2 if value < 10 else 1 if value < 1000 else 0
    line = f"  {what:<72} {value:>10.{digits}f} {unit:<6}"
    if goal is not None:
        met = value <= goal if most else value >= goal
        line += f"  goal {'<=' if most else '>='} {goal:g}: {'met' if met else 'MISSED'}"
    print(line, flush=True)


def files_of(source: str) -> list[str]:
    files = (
        sorted(glob.glob(os.path.join(source, "*.safetensors")))
        if os.path.isdir(source)
        else [source]
    )
    if not files or not os.path.exists(files[0]):
        sys.exit(f"{source}: holds no *.safetensors: name a checkpoint's folder, or its one file")
    return files


def warm(files: list[str]) -> None:
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 23):
                pass


def half(values: Sequence[float]) -> float:
    return statistics.median(values)


# ---- processes that have a context ----


def check(processes: Mapping[str, Process]) -> set[str]:
    """Loads once for nothing, since the machine's memory grows on first touch; all tensors must be
    equal."""
    first: tuple[str, str] | None = None
    slow: set[str] = set()
    for name, process in processes.items():
        took = process.load()
        if took > SLOW_S:
            slow.add(name)
        found = process.ask("sums")["sums"]
        process.ask("drop")
        first = first or (process.peer.label, found)
        if found != first[1]:
            sys.exit(
                f"{process.peer.label} loaded other tensors than {first[0]}: no comparison is made"
            )
    return slow


def settle(arguments: argparse.Namespace) -> None:
    """Until nothing of what another loader freed is being cleared beside the next load."""
    if arguments.gpu:
        time.sleep(SETTLE_S)


def measure_warm(
    arguments: argparse.Namespace, files: list[str], gpuwms: Mapping[str, Gpuwm]
) -> dict[str, Any]:
    processes = {
        name: Process(name, arguments.torch, files, arguments.socket) for name in arguments.loaders
    }
    others = {"attach": Process("attach", arguments.torch, files, arguments.socket)}
    if arguments.gpu:
        others["ceiling"] = Process("ceiling", arguments.torch, files, arguments.socket)
    for process in (*processes.values(), *others.values()):
        process.wait()
    slow = check(processes)
    for name, gpuwm in gpuwms.items():
        gpuwm.load(arguments.source, f"compare-{name}@warm")
        gpuwm.retire(f"compare-{name}@warm")
    figures: dict[str, Any] = {name: [] for name in (*processes, *others, *gpuwms, "copy", "hand")}
    figures["phases"] = {name: [] for name in gpuwms}
    for number in range(arguments.rounds):
        if "ceiling" in others:
            settle(arguments)
            figures["ceiling"].append(others["ceiling"].load())
        for name, process in processes.items():
            if name in slow and number > 0:
                continue
            settle(arguments)
            figures[name].append(process.load())
            if name == "load_file" and arguments.gpu:
                figures["hand"].append(process.ask("hand")["seconds"])
            process.ask("drop")
        for name, gpuwm in gpuwms.items():
            ref = f"compare-{name}@{number}"
            settle(arguments)
            ready, phases = gpuwm.load(arguments.source, ref)
            figures[name].append(ready)
            figures["phases"][name].append(phases)
            if name == "gpuwm":
                figures["copy"].append(phases["copying"] / 1000)
                figures["attach"].append(others["attach"].load(ref))
                others["attach"].ask("drop")
            gpuwm.retire(ref)
    for process in (*processes.values(), *others.values()):
        process.end()
    return figures


ROWS = {
    "kept": "gpuwm, context kept: gpuwmctl load to ready",
    "gpuwm": "gpuwm, no context kept: gpuwmctl load to ready",
    "copy": "  of it the copy",
}


def label_of(name: str) -> str:
    label = ROWS.get(name) or {**loaders.PEERS, **loaders.OTHERS}[name].label
    return f"{label} ({notes[label]})" if notes.get(label) else label


def report_phases(name: str, rounds: Sequence[collections.Counter[str]]) -> None:
    phases = dict.fromkeys(phase for one in rounds for phase in one)
    parts = ", ".join(f"{phase} {half([one[phase] for one in rounds]):.0f}" for phase in phases)
    print(f"  {label_of(name)}: ms of each phase: {parts}")


def report_warm(figures: dict[str, Any], size: int, arguments: argparse.Namespace) -> None:
    has = "a context" if arguments.gpu else "its modules"
    print(f"each in a process that has {has}: seconds, GB/s, share of the ceiling, rounds")
    ceiling = half(figures["ceiling"]) if figures.get("ceiling") else None
    for name in ("ceiling", "kept", "gpuwm", "copy", *arguments.loaders):
        if not figures.get(name):
            continue
        seconds = half(figures[name])
        # gpuwmd counts a phase in whole milliseconds, so the copy of a small file may have taken 0.
        share = f"{ceiling / seconds:>8.2f}" if ceiling and seconds else f"{'-':>8}"
        rate = f"{size / 1e9 / seconds:>8.1f}" if seconds else f"{'-':>8}"
        print(f"  {label_of(name):<60} {seconds:>8.3f} {rate} {share} {len(figures[name]):>4}")
    for name, rounds in figures["phases"].items():
        report_phases(name, rounds)
    if "kept" not in figures:
        print("  gpuwm with a kept context was not measured: --kept-socket names its gpuwmd")
    if arguments.gpu:
        assert ceiling is not None
        goals_warm(figures, size, arguments, ceiling)
    result(half(figures["attach"]) * 1e3, "ms", "gpuwm.attach and state_dict of the same tensors")


def goals_warm(
    figures: dict[str, Any], size: int, arguments: argparse.Namespace, ceiling: float
) -> None:
    others = {name: half(figures[name]) for name in arguments.loaders}
    if "kept" in figures:
        kept = half(figures["kept"])
        result(
            (kept - ceiling) * 1e3,
            "ms",
            "context kept: beyond the time at the ceiling",
            GOAL_KEPT_MS,
            most=True,
        )
        fastest = min(others, key=others.__getitem__)
        result(kept / others[fastest], "x", f"context kept / {label_of(fastest)}", 1, most=True)
    if "load_file" in others:
        goal = GOAL_READY_LARGE if size >= 32 << 30 else GOAL_READY_SMALL
        if half(figures["copy"]):
            result(
                others["load_file"] / half(figures["copy"]),
                "x",
                "gpuwm's copy / load_file",
                GOAL_COPY,
            )
        result(
            others["load_file"] / half(figures["gpuwm"]),
            "x",
            "load_file / gpuwm, no context kept",
            goal,
        )
        result(
            half(figures["hand"]) * 1e3,
            "ms",
            "torch: all tensors to another process, until it touched each",
        )


# ---- processes counted from their start ----


def measure_start(
    arguments: argparse.Namespace, files: list[str], gpuwms: Mapping[str, Gpuwm]
) -> dict[str, list[tuple[float, ...]]]:
    figures: dict[str, list[tuple[float, ...]]] = {
        name: [] for name in (*arguments.loaders, "gpuwm", "attach")
    }
    gpuwm = gpuwms["gpuwm"]

    def start(name: str, ref: str = "") -> None:
        settle(arguments)
        process = Process(name, arguments.torch, files, arguments.socket)
        figures[name].append(process.start_and_load(ref))
        process.end()

    for number in range(arguments.starts):
        for name in arguments.loaders:
            if number == 0 or figures[name][0][3] <= SLOW_S:
                start(name)
        ref = f"compare-start@{number}"
        settle(arguments)
        figures["gpuwm"].append((gpuwm.load(arguments.source, ref)[0],))
        start("attach", ref)
        gpuwm.retire(ref)
    return figures


def report_start(
    figures: dict[str, list[tuple[float, ...]]], arguments: argparse.Namespace
) -> None:
    print(
        "each counted from its process's start: seconds in all, of them imports, context, load;"
        " rounds"
    )
    halves = {
        name: [half(part) for part in zip(*rows, strict=True)] for name, rows in figures.items()
    }
    for name in ("gpuwm", "attach", *arguments.loaders):
        parts = "".join(f" {value:>8.3f}" for value in halves[name])
        print(f"  {label_of(name):<60}{parts:<36} {len(figures[name]):>4}")
    if not arguments.gpu:
        return
    whole = min(arguments.loaders, key=lambda name: halves[name][0])
    result(
        halves["gpuwm"][0] / halves[whole][0],
        "x",
        f"gpuwm / {label_of(whole)}, from its exec",
        1,
        most=True,
    )
    # Imports are Python's and torch's, not the loader's: this is the harder comparison.
    bare = min(arguments.loaders, key=lambda name: sum(halves[name][2:]))
    what = f"gpuwm / {label_of(bare)}, its context and load only"
    result(halves["gpuwm"][0] / sum(halves[bare][2:]), "x", what, 1, most=True)


# ---- workers ----


def count_workers(arguments: argparse.Namespace, files: list[str], gpuwm: Gpuwm) -> None:
    names = arguments.loaders if arguments.named else None
    able, skipped = workers.find(names, files, arguments.gpu)
    if names and skipped:
        sys.exit(f"--loaders: {workers.skip_told(skipped[0])}")
    cache = workers.PageCache(files, arguments.cache == "cold", warm)

    def start(name: str) -> Process:
        settle(arguments)
        return Process(name, arguments.torch, files, arguments.socket)

    rows = workers.measure(able, start, gpuwm, arguments.source, arguments.rounds, cache)
    workers.report(rows, skipped, cache)
    workers.write(arguments, files, able, rows, skipped, cache)


# ---- arguments ----


def loaders_of(names: str | None, gpu: bool) -> list[str]:
    """The names of a list with commas, or all that load to this memory."""
    able = [name for name, peer in loaders.PEERS.items() if gpu or peer.cpu]
    chosen = able if names is None else [name for name in names.split(",") if name]
    for name in chosen:
        if name not in loaders.PEERS:
            sys.exit(
                f"--loaders: no loader is called {name!r}; there are {', '.join(loaders.PEERS)}"
            )
        if name not in able:
            sys.exit(f"--loaders: {name} loads to GPUs only; on host there are {', '.join(able)}")
    if not chosen:
        sys.exit(f"--loaders: names no loader; there are {', '.join(able)}")
    return chosen


def count_of(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds: at least 1")
    return int(text)


def arguments_read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwm.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source")
    parser.add_argument("--socket", help="default: a gpuwmd of its own")
    parser.add_argument("--kept-socket")
    parser.add_argument(
        "--device", default="cuda:0", help="of gpuwm and of all loaders: cuda:N, or host"
    )
    parser.add_argument(
        "--loaders", metavar="NAME,...", help=f"default: all of {','.join(loaders.PEERS)}"
    )
    parser.add_argument("--count", choices=("warm", "start", "both", "workers"), default="both")
    parser.add_argument(
        "--cache",
        choices=("warm", "cold"),
        default="warm",
        help="of workers: the files' page cache",
    )
    parser.add_argument("--json", metavar="FILE", help="of workers: the figures")
    parser.add_argument("--svg", metavar="FILE", help="of workers: a plot")
    parser.add_argument("--rounds", type=count_of, default=5, help="of warm and workers (5)")
    parser.add_argument("--starts", type=count_of, default=3, help="of start (3)")
    arguments = parser.parse_args()
    arguments.gpu = arguments.device != "host"
    arguments.torch = arguments.device if arguments.gpu else "cpu"
    if arguments.kept_socket and not arguments.gpu:
        parser.error("--kept-socket: loads to host need no context, so none is kept")
    if arguments.count != "workers" and (
        arguments.json or arguments.svg or arguments.cache == "cold"
    ):
        parser.error("--cache, --json and --svg are of --count workers")
    arguments.named = arguments.loaders is not None
    arguments.loaders = loaders_of(arguments.loaders, arguments.gpu)
    return arguments


def main() -> int:
    # Python may be called by its path, with the programs beside it and not on PATH.
    beside = os.path.dirname(sys.executable)
    os.environ["PATH"] = os.environ.get("PATH", os.defpath) + os.pathsep + beside
    arguments = arguments_read()
    for program in ("gpuwmctl",) if arguments.socket else ("gpuwmctl", "gpuwmd"):
        if shutil.which(program) is None:
            sys.exit(
                f"there is no {program} on PATH: install gpuwm's wheel, or add its folder to PATH"
            )
    arguments.source = os.path.abspath(arguments.source)
    files = files_of(arguments.source)
    with contextlib.ExitStack() as stack:
        arguments.socket = arguments.socket or stack.enter_context(
            own_gpuwmd(arguments.source, files)
        )
        return compare(arguments, files)


def compare(arguments: argparse.Namespace, files: list[str]) -> int:
    size = sum(os.path.getsize(path) for path in files)
    gpuwms = {"gpuwm": Gpuwm(arguments.socket, arguments.device, keeps=False)}
    if arguments.kept_socket:
        gpuwms["kept"] = Gpuwm(arguments.kept_socket, arguments.device, keeps=True)
    cached = "" if arguments.count == "workers" else ", cached"
    what = f"{size / 2**30:.2f} GiB in {len(files)} files{cached}"
    print(f"beside other loaders: {what}, to {arguments.device}; medians of rounds in turns")
    if arguments.count == "workers":
        count_workers(arguments, files, gpuwms["gpuwm"])
        return 0
    warm(files)
    if arguments.count != "start":
        report_warm(measure_warm(arguments, files, gpuwms), size, arguments)
    if arguments.count != "warm":
        report_start(measure_start(arguments, files, gpuwms), arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
