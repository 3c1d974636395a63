"""The part `trainer`: a trainer publishes, and two engines follow through vLLM's weight transfer;
beside them vLLM's own transfer by CUDA's IPC."""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Any

import processes
from parts import auto
from processes import Engine
from report import differing, first_difference
from running import START_S, Run

HALVES = ("half-1", "half-2")  # the checkpoints, whose answers differ
FIRST = "policy@step-0"
ENGINES = 2
# For the engines, beside a trainer with its tensors: 40 GB of 80.
SHARE: dict[str, Any] = {"gpu_memory_utilization": 0.5}
ALONE_SHARE: dict[str, Any] = {"gpu_memory_utilization": 0.3}
GPUWM: dict[str, Any] = {"weight_transfer_config": {"backend": "gpuwm"}}
IPC: dict[str, Any] = {"weight_transfer_config": {"backend": "ipc"}}
INSECURE = {"VLLM_ALLOW_INSECURE_SERIALIZATION": "1"}  # of handles, which this driver wrote
STEP_S = 60.0  # for a publish or an update, on a machine that is busy
GROWN_MIB = 64  # that may be in use more after the last publish than after the third: noise
SETTLED_AFTER = 3  # publishes, after which older versions are retired and caches are warm
COPIED = 0.01  # of a dense model's bytes: norms, and an engine's buffers
REFRESHED = re.compile(r"refreshed (\d+) bytes of private copies")


@dataclass
class Training:
    """bases: engines with vLLM's own load of each half. round: of publishes, from 1."""

    run: Run
    bases: list[Engine]
    engines: list[Engine]
    trainer: Engine
    round: int = 0

    def answered_as(self, engine: Engine, half: int, times: int) -> bool:
        """Whether it answers as vLLM's own load of that half does, in every bit."""
        engine.ask("again")
        processes.answered([engine], STEP_S, times)
        base = self.bases[half]
        names = differing(base.hashes(), engine.hashes())
        for name in names[:1]:
            self.run.report.note(first_difference(base.answers(), engine.answers(), name))
        return not names


def trainer(run: Run) -> None:
    """Publishes one after the other, which engines follow; then vLLM's own."""
    run.head()
    bases = [run.measured(run.engine(f"own-{half}", half), None) for half in HALVES]
    engines = []
    for number in range(1, ENGINES + 1):
        extra = auto(FIRST, ENGINES)
        engine = run.engine(f"follows-{number}", HALVES[0], extra, **SHARE, **GPUWM)
        run.measured(engine, bases[0], ends=False)
        engines.append(engine)
    program = run.engine(
        "trainer",
        HALVES[0],
        auto(FIRST, ENGINES),
        training=tuple(HALVES),
        **SHARE,
    )
    processes.told([program], "started", START_S)
    started = program.log.event("started") or {}
    run.report.note(f"the trainer's start, s: {rounded(started.get('seconds', {}))}")
    run.report.record("trainer", started=started)
    training = Training(run, bases, engines, program)
    publishes(training)
    run.end(*engines)
    ipc(training)
    dies(training)
    run.end()


def rounded(seconds: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


# ---- gpuwm --------------------------------------------------------------------------------------


def publishes(training: Training) -> None:
    run = training.run
    run.report.head(
        "seconds", *("begin", "load", "commit", "copied MB"), *("prepare", "finish", "MiB in use")
    )
    wrong: list[str] = []
    allocated: list[int] = []
    in_use: list[int] = []
    finishes: list[float] = []
    for number in range(1, run.publishes + 1):
        training.round = number
        half = number % 2
        published = publish(training, number, half)
        updates = [
            update(engine, f"{FIRST.partition('@')[0]}@prod", number) for engine in training.engines
        ]
        for engine in training.engines:
            if not training.answered_as(engine, half, number + 1):
                wrong.append(f"{engine.name} after step-{number}")
        allocated += [each.get("peak bytes", 0) for each in updates]
        finishes += [each["seconds"]["finish"] for each in updates]
        in_use.append(sum(run.gpus.settled_mib()))
        row(run, f"step-{number}, {HALVES[half]}", published, updates, in_use[-1])
        run.report.record(
            "publish", step=number, published=published, updates=updates, in_use_mib=in_use[-1]
        )
        share = published["copied"] / published["bytes"]
        if share > COPIED:
            wrong.append(f"step-{number}: {published['copied']:,} bytes were copied after loading")
    run.report.check(not wrong, f"{run.publishes} publishes, both engines follow: {wrong or 'all'}")
    run.report.check(
        not any(allocated), f"bytes that the engines allocated for updates: {sum(allocated)}"
    )
    copies(training)
    settled = in_use[SETTLED_AFTER - 1 :] or in_use
    grown = max(settled) - settled[0]
    run.report.check(grown <= GROWN_MIB, f"{grown} MiB more in use after the last publish")
    middle = statistics.median(finishes) * 1000
    run.report.note(f"finish_weight_update takes {middle:.1f} ms, in the median")
    kept(training)


def copies(training: Training) -> None:
    """What the engines copied, as they say: their buffers, a few MB."""
    size = (training.trainer.log.event("published") or {})["bytes"]
    for engine in training.engines:
        told = [int(each) for each in REFRESHED.findall(engine.path.read_text(errors="replace"))]
        training.run.report.check(
            len(told) == training.round and max(told) <= COPIED * size,
            f"{engine.name} copied no weights: {max(told, default=-1):,} bytes of buffers for each "
            f"of {len(told)} updates, the version has {size:,}",
        )


def publish(training: Training, number: int, half: int) -> dict[str, Any]:
    training.trainer.ask(f"publish step-{number} {half}")
    processes.told([training.trainer], "published", STEP_S, number)
    return training.trainer.log.event("published") or {}


def update(engine: Engine, ref: str, times: int) -> dict[str, Any]:
    engine.ask(f"update {ref}")
    processes.told([engine], "updated", STEP_S, times)
    return engine.log.event("updated") or {}


def row(
    run: Run,
    name: str,
    published: dict[str, Any],
    updates: list[dict[str, Any]],
    in_use: int,
) -> None:
    seconds = published["seconds"]
    slowest = {
        step: max(each["seconds"][step] for each in updates) for step in ("prepare", "finish")
    }
    run.report.row(
        name,
        *(seconds["begin"], seconds["load"], seconds["commit"], published["copied"] / 1e6),
        *(slowest["prepare"], slowest["finish"], in_use),
    )


def kept(training: Training) -> None:
    """Old versions go when the engines have left them."""
    versions = [each for each in training.run.service.versions() if each["state"] == "ready"]
    tags = sorted(each["tag"] for each in versions if each["model"] == "policy")
    wanted = sorted({"step-0", f"step-{training.round}", f"step-{training.round - 1}"})
    training.run.report.check(tags == wanted, f"older versions are gone: {tags}")


# ---- vLLM's own, and an end ---------------------------------------------------------------------


def ipc(training: Training) -> None:
    """The same tensors through vLLM's backend `ipc`, into an engine with weights of its own."""
    run = training.run
    engine = run.engine("ipc", HALVES[0], environment=INSECURE, **ALONE_SHARE, **IPC)
    run.measured(engine, training.bases[0], ends=False)
    path = run.out / "ipc-handles"
    run.report.head("vLLM's IPC, seconds", "start", "update", "finish", "peak MB")
    for number, half in enumerate((1, 0, 1), 1):
        training.trainer.ask(f"send {path} {half}")
        processes.told([training.trainer], "sent", STEP_S, number)
        engine.ask(f"receive {path}")
        processes.told([engine], "updated", STEP_S, number)
        training.trainer.ask("received")
        found = engine.log.event("updated") or {}
        seconds = found["seconds"]
        peak = found.get("peak bytes", 0) / 1e6
        run.report.row(
            f"{HALVES[half]}", seconds["start"], seconds["prepare"], seconds["finish"], peak
        )
        run.report.record("ipc", half=half, updated=found)
        same = training.answered_as(engine, half, number + 1)
        run.report.check(same, f"after vLLM's IPC the engine answers as {HALVES[half]}")
    path.unlink(missing_ok=True)
    run.end(engine)


def dies(training: Training) -> None:
    """Killed when half of the tensors are given: nobody gets that version, and its memory goes."""
    run, program = training.run, training.trainer
    program.ask("die torn 1")
    processes.wait([program], lambda engine: not engine.alive, STEP_S, "ended")
    run.end(program)
    states = [each["state"] for each in run.service.versions() if each["tag"] == "torn"]
    run.report.check("ready" not in states, f"a publish that was cut off is no version: {states}")
