"""Engines of vLLM on weights that gpuwm holds, on a machine with a GPU.

    tests/gpu/engines/run OUT PART...
Parts print a table and checks. OUT gets engines.jsonl (everything measured), engines.txt (what was
printed) and logs.tar.gz. `models` makes the checkpoints that the other parts name. The README
beside this says in which order, and how long each takes."""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tarfile
import time
import traceback
from types import FrameType
from typing import Any

import failures
import kv
import kv_faults
import parking
import parts
import quantised
import ranks
import running
import standing
import standing_http
import swapping
import training
from memory import Gpus
from processes import HERE, Failed, Spares
from report import Report
from running import Run
from service import Service

PARTS: dict[str, tuple[Any, int, str]] = {
    **parts.PARTS,
    "park": (parking.park, 570, "engines that sleep in turn, compiled, with graphs"),
    "park-small": (parking.park_small, 300, "engines that sleep in turn, eager"),
    "kill": (failures.kill, 200, "gpuwmd and builders killed"),
    "swap": (swapping.swap, 420, "an engine that serves is switched"),
    "swap-http": (swapping.swap_http, 560, "vllm serve is switched over HTTP"),
    "standby": (standing.standby, 300, "an engine is killed, and a standby takes over"),
    "standby-http": (standing_http.standby_http, 300, "servers are killed, others take over"),
    "trainer": (training.trainer, 300, "a trainer publishes, two engines follow"),
    "kv": (kv.kv, 300, "KV from a prefill engine to a decode engine, and beside vLLM's connectors"),
    "kv-faults": (kv_faults.kv_faults, 300, "KV, and engines and gpuwmd killed, and a swap"),
    "kv-graphs": (kv.kv_graphs, 300, "KV, compiled, with full graphs"),
    "kv-sleep": (kv.kv_sleep, 120, "KV, and an engine that sleeps and wakes"),
    "kv2": (kv.kv2, 300, "KV from an engine on one GPU to an engine on the other"),
    "quantised": (quantised.integers_served, 200, "small models of quantised integers, eager"),
    "quantised-floats": (quantised.floats_served, 200, "small models of floats of 4 and 8 bits"),
    "tp2": (ranks.tp2, 200, "two ranks, eager"),
    "tp2-cut": (ranks.tp2_cut, 300, "two ranks, from checkpoints that were cut for them"),
    "tp2-graphs": (ranks.tp2_graphs, 260, "two ranks, default compilation and graphs"),
    "tp2-swap": (ranks.tp2_swap, 560, "vllm serve with two ranks is switched over HTTP"),
    "tp2-standby": (ranks.tp2_standby, 300, "servers of two ranks are killed, others take over"),
    "tp2-moe": (ranks.tp2_moe, 220, "two ranks, experts"),
}


SPARES = 8  # made at a time: twice as many processors are there


class OutOfTime(Exception):
    """A part has had its seconds."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("parts", nargs="+", metavar="PART", help=f"models, {', '.join(PARTS)}")
    parser.add_argument(
        "--models",
        default="tiny,dense,small,small-lora,moe,half-1,half-2",
        help="what `models` makes",
    )
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="the folder of gpuwmd")
    parser.add_argument(
        "--state", type=pathlib.Path, required=True, help="what stays for the next run"
    )
    parser.add_argument("--attention", help="a backend of vLLM's; without it what `smoke` found")
    parser.add_argument("--fresh", action="store_true", help="no process imports vLLM ahead")
    parser.add_argument(
        "--llm", action="append", default=[], metavar="NAME=NUMBER", help="for every engine"
    )
    parser.add_argument(
        "--one-card", action="store_true", help="the ranks of the parts tp2… share the first GPU"
    )
    parser.add_argument("--limit", type=int, help="seconds for each part, instead of its own limit")
    parser.add_argument(
        "--switches", default="50,20", metavar="KEEP,FINISH", help="how many `swap` makes"
    )
    parser.add_argument(
        "--answers",
        type=int,
        default=224,
        metavar="TOKENS",
        help="the shortest answers of the streams that `swap` switches",
    )
    parser.add_argument("--turns", type=int, default=20, help="how many each engine of `park` has")
    parser.add_argument("--publishes", type=int, default=10, help="how many `trainer` makes")
    parser.add_argument(
        "--training", default=str(HERE / "trainer.py"), help="what stands in for trainer.py"
    )
    parser.add_argument(
        "--serving", default=str(HERE / "serving.py"), help="what stands in for serving.py"
    )
    parser.add_argument(
        "--engine", default=str(HERE / "engine.py"), help="what stands in for engine.py"
    )
    parser.add_argument(
        "--standing", default="", help="what stands in for `standby-http`'s servers"
    )
    found = parser.parse_args()
    unknown = [part for part in found.parts if part not in PARTS and part != "models"]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; parts are models, {', '.join(PARTS)}")
    return found


class Tee:
    """What is printed, into OUT/engines.txt too: the machine shows the end of long outputs only."""

    def __init__(self, path: pathlib.Path) -> None:
        self._out, self._file = sys.stdout, path.open("a", buffering=1)

    def write(self, text: str) -> int:
        self._file.write(text)
        return self._out.write(text)

    def flush(self) -> None:
        self._out.flush()


def run_part(run: Run, name: str, given: int | None) -> None:
    part, limit, title = PARTS[name]
    limit = given or limit
    run.report.begin(name, title)
    begin = time.monotonic()

    def out_of_time(number: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"{name} is given up after {limit} s")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(limit)
    try:
        part(run)
    except (Failed, OutOfTime, RuntimeError) as failed:
        run.report.check(False, str(failed))
    except Exception:
        run.report.check(False, traceback.format_exc(limit=-4))
    finally:
        signal.alarm(0)
        run.kill_all()
        for why in run.service.retire_all():
            run.report.check(False, f"{name} leaves a version: {why}")
        run.gpus.settled_mib()
        print(f"-- {name}: {time.monotonic() - begin:.0f} s", flush=True)


def make_models(state: pathlib.Path, names: str) -> None:
    """In a process of its own: what it has on the GPU goes with it."""
    begin = time.monotonic()
    print("\n== models", flush=True)
    sys.stdout.flush()
    words = [sys.executable, str(HERE / "models.py"), str(state / "models"), *names.split(",")]
    if os.spawnv(os.P_WAIT, sys.executable, words):
        sys.exit(f"models.py could not make {names}")
    print(f"-- models: {time.monotonic() - begin:.0f} s", flush=True)


def chosen(options: argparse.Namespace) -> str:
    """The attention backend: as `smoke` found it, unless an option says."""
    kept = options.state / "attention"
    return str(options.attention or (kept.read_text() if kept.exists() else ""))


def pack_logs(out: pathlib.Path) -> None:
    """All logs in one file: few files come back from the machine."""
    with tarfile.open(out / "logs.tar.gz", "w:gz") as packed:
        packed.add(out / "logs", "logs")
    shutil.rmtree(out / "logs")


def main() -> None:
    options = arguments()
    logs = options.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    (options.state / "models").mkdir(parents=True, exist_ok=True)
    sys.stdout = Tee(options.out / "engines.txt")
    running.set_environment()
    shared = ranks.one_card() if options.one_card else {}
    if "models" in options.parts:
        make_models(options.state, options.models)
    names = [part for part in options.parts if part != "models"]
    if not names:
        return
    attention = chosen(options)
    llm = {name: int(number) for name, _, number in (entry.partition("=") for entry in options.llm)}
    report, gpus = Report(options.out), Gpus()
    spares = None if options.fresh else Spares(options.engine, logs, SPARES)
    service = Service(options.programs, logs / "gpuwmd", [options.state / "models"])
    keep, finish = map(int, options.switches.split(","))
    run = Run(
        logs,
        options.state,
        report,
        gpus,
        service,
        options.engine,
        serving=options.serving,
        standing=options.standing,
        training=options.training,
        switches=(keep, finish),
        publishes=options.publishes,
        answers=options.answers,
        turns=options.turns,
        spares=spares,
        attention=attention,
        llm=llm,
        ranks=shared,
    )
    try:
        for name in names:
            run_part(run, name, options.limit)
    finally:
        run.kill_all()
        if spares:
            spares.stop()
        service.stop()
        pack_logs(options.out)
    if report.failed:
        print(f"\nFAILED: {len(report.failed)} checks", *report.failed, sep="\n  ", flush=True)
    sys.exit(bool(report.failed))


if __name__ == "__main__":
    main()
