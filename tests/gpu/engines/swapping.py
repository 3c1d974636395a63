"""The parts `swap` and `swap-http`: an engine that serves is switched between two versions, whose
tokens tell which of them computed each."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from typing import Any

import processes
from models import MODELS
from parts import COMPILED, auto
from processes import Engine, Failed
from running import START_S, Run

STREAMS = 8
VERSIONS = ("swap@v1", "swap@v2")
MISSING = "swap@none"
# Both programs have the same limits; vLLM's defaults are not the same for both.
LIMITS: dict[str, Any] = {"max_num_seqs": 64, "max_num_batched_tokens": 8192, **COMPILED}
SERVING: dict[str, Any] = {
    "worker_cls": "auto",
    "worker_extension_cls": "gpuwm.vllm.Extension",
    "streams": STREAMS,
}
# The engine is a process that the program starts. A fork of a process that has opened CUDA's driver
# can't use it.
ENVIRONMENT = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
SWITCH_S = 90.0  # gpuwmd may be away for 30 s
AGAIN_S = 60.0  # in which a switch is asked for again, since gpuwmd is away
AWAY = ("Unreachable", "Disconnected")
KILL_EVERY = 5  # gpuwmd is killed before each fifth switch
GAP_MS = 50.0  # the goal: from the last step on the old version to the first on the new one
PHASES = ("prepare", "pause", "exchange", "resume")


def swap(run: Run) -> None:
    """Streams that never stop, switches there and back, gpuwmd killed in between."""
    serve(run, LIMITS)


def swap_http(run: Run, **llm: Any) -> None:
    """The same with `vllm serve` and a URL. The builders compile nothing. llm: for all engines."""
    serve(run, {**LIMITS, **llm, "enforce_eager": True}, http=True, **llm)


def serve(run: Run, building: dict[str, Any], **how: Any) -> None:
    warm = run.cache("swap")
    run.head()
    for model, ref in zip(("half-1", "half-2"), VERSIONS, strict=True):
        builder = run.engine(f"builds-{model}", model, auto(ref), environment=warm, **building)
        run.way(run.measured(builder, None), "built")
    engine = run.engine(
        "serves",
        "half-1",
        auto(VERSIONS[0]),
        environment={**warm, **ENVIRONMENT},
        **LIMITS | SERVING | how,
    )
    processes.told([engine], "started", START_S)
    run.report.record("serving", started=engine.log.event("started"), numbers=engine.log.numbers)
    labels = switches(run, Switching(engine))
    engine.ask("record")
    processes.told([engine], "recorded", SWITCH_S)
    found = Record(engine.answers(), labels, int(MODELS["half-1"][1]["vocab_size"]))
    run.end(engine)
    judge(run, found)
    figures(run, found)


# ---- what is asked of the engine ----------------------------------------------------------------


class Switching:
    """Switches of one engine: there, and back. labels: of each that was tried."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.on = 0  # which of VERSIONS
        self.labels: list[str] = []

    def once(self, label: str, ref: str, mode: str) -> dict[str, Any]:
        """What became of it. Failed: the engine ended, or did not answer."""
        self._engine.ask(f"switch {ref} {mode}")
        self.labels.append(label)
        processes.told([self._engine], "switched", SWITCH_S, len(self.labels))
        found = self._engine.log.event("switched") or {}
        if not found["served"]:
            raise Failed(f"{self._engine.name}: its streams stand still after the switch to {ref}")
        return found

    def to_the_other(self, label: str, mode: str) -> None:
        """Repeated while gpuwmd is away. Failed: it failed otherwise."""
        deadline = time.monotonic() + AGAIN_S
        ref = VERSIONS[1 - self.on]
        while True:
            found = self.once(label, ref, mode)
            if not found["error"]:
                self.on = 1 - self.on
                return
            if found["error"] not in AWAY or time.monotonic() > deadline:
                raise Failed(f"the switch to {ref} failed: {found['message']}")


def switches(run: Run, switching: Switching) -> list[str]:
    """The label of each that was tried."""
    refused(run, switching)
    for mode, count in zip(("keep", "finish"), run.switches, strict=True):
        for number in range(count):
            killed = number % KILL_EVERY == KILL_EVERY - 1
            if killed:
                run.service.kill()  # the next one comes at once
            switching.to_the_other(f"{mode}, killed" if killed else mode, mode)
            if killed:
                run.service.wait_until_ready()
        if mode == "keep":
            away(run, switching)
    refused(run, switching)
    return switching.labels


def refused(run: Run, switching: Switching) -> None:
    found = switching.once("missing", MISSING, "keep")
    run.report.check(
        found["error"] == "NotFound",
        f"a version that is not there is NotFound: {found['error'] or 'it was taken'}",
    )


def away(run: Run, switching: Switching) -> None:
    """A switch fails while there is no gpuwmd, and is repeated when there is one."""
    with run.service.away():
        found = switching.once("away", VERSIONS[1 - switching.on], "keep")
    run.report.check(
        found["error"] in AWAY, f"without a gpuwmd it is Unreachable: {found['error'] or 'it went'}"
    )
    if found["error"]:
        switching.to_the_other("keep, after", "keep")


# ---- what the program recorded ------------------------------------------------------------------


@dataclass
class Token:
    """half: 1 or 2, the version that computed it. computed: when its step ended, as the engine's
    process says, or when it was received, as a server does not say; received: when the program had
    it."""

    half: int
    computed: float
    received: float


class Record:
    """What serving.py wrote. labels: of its switches. streams: all tokens of each, in order."""

    def __init__(self, found: dict[str, Any], labels: list[str], vocabulary: int) -> None:
        self.requests, self.switches = found["requests"], found["switches"]
        for switch, label in zip(self.switches, labels, strict=True):
            switch["label"] = label
        self.moves = [switch for switch in self.switches if switch["moved"]]
        # Whether it is known when steps ended.
        self.steps = any(
            computed for request in self.requests for _, computed, _ in request["items"]
        )
        self.streams: dict[int, list[Token]] = {}
        for request in self.requests:
            request["tokens"] = tokens_of(request, vocabulary)
            self.streams.setdefault(request["stream"], []).extend(request["tokens"])


def tokens_of(request: dict[str, Any], vocabulary: int) -> list[Token]:
    found: list[Token] = []
    for received, computed, tokens in request["items"]:
        found += [
            Token(1 if token < vocabulary // 2 else 2, computed or received, received)
            for token in tokens
        ]
    return found


def incomplete(record: Record) -> list[str]:
    """Requests that failed, or whose answers are not as long as was asked for."""
    found = []
    for request in record.requests:
        count = len(request["tokens"])
        if request["error"] or request["reason"] != "length" or count != request["wanted"]:
            why = request["error"] or request["reason"]
            found.append(f"request {request['number']}: {count} of {request['wanted']}: {why}")
    return found


def changes(tokens: list[Token]) -> int:
    """How often the version changes from one token to the next."""
    return sum(one.half != other.half for one, other in itertools.pairwise(tokens))


def out_of_order(record: Record) -> list[str]:
    """Streams whose tokens are not of one version, then of the other, once for each switch."""
    found = []
    for stream, tokens in sorted(record.streams.items()):
        if tokens and tokens[0].half != 1:
            found.append(f"stream {stream} begins on the second version")
        if (count := changes(tokens)) != len(record.moves):
            found.append(f"stream {stream}: {count} changes, {len(record.moves)} switches")
    return found


def misplaced(record: Record) -> list[str]:
    """Tokens that are not of the version that the engine was on when their step ended. The engine
    moves between the return of the pause and the call of the resume, and no step ends meanwhile."""
    if not record.steps:
        return []
    bounds = [(move["times"]["pause"][1], move["times"]["resume"][0]) for move in record.moves]
    found = []
    for stream, tokens in sorted(record.streams.items()):
        at = 0  # switches before the token
        for token in tokens:
            while at < len(bounds) and token.computed >= bounds[at][1]:
                at += 1
            if at < len(bounds) and bounds[at][0] < token.computed:
                found.append(f"stream {stream}: a step ended in the pause of switch {at + 1}")
            elif token.half != 1 + at % 2:
                found.append(
                    f"stream {stream}: a token of version {token.half} after {at} switches"
                )
    return found


def mixed(record: Record) -> list[str]:
    """Answers whose version changes more often than switches with mode keep fell into them."""
    times = [move["times"]["resume"][0] for move in record.moves if move["mode"] == "keep"]
    found = []
    for request in record.requests:
        tokens = request["tokens"]
        crossed = tokens and sum(tokens[0].computed < at <= tokens[-1].computed for at in times)
        if changes(tokens) > (crossed or 0):
            found.append(f"request {request['number']}")
    return found


def judge(run: Run, record: Record) -> None:
    tokens = sum(len(stream) for stream in record.streams.values())
    expected = sum(run.switches) + sum(switch["label"] == "keep, after" for switch in record.moves)
    moves = f"{len(record.moves)} switches, {expected} were to be"
    run.report.check(len(record.moves) == expected, moves)
    for what, found in (
        (f"none of {len(record.requests)} requests failed or ended short", incomplete(record)),
        ("in each stream each switch changes the version once, in order", out_of_order(record)),
        (f"each of {tokens} tokens is of the version of its time", misplaced(record)),
        ("with finish each answer is of one version", mixed(record)),
    ):
        run.report.check(not found, f"{what}{': ' if found else ''}{'; '.join(found[:3])}")


# ---- figures ------------------------------------------------------------------------------------


def gaps(record: Record, move: dict[str, Any]) -> dict[str, float]:
    """In ms, over all streams, around a switch: "tokens": from the last token of the old version to
    the first of the new, as received. "steps": the same, as the steps ended that computed them.
    "idle": from the end of the last step on the old version to the return of the resume, and with
    it the first step on the new one begins."""
    middle = move["times"]["resume"][0]
    every = [token for tokens in record.streams.values() for token in tokens]
    old = [token for token in every if token.computed < middle]
    new = [token for token in every if token.computed >= middle]
    if not old or not new:
        return {}
    ended = max(token.computed for token in old)
    received = max(token.received for token in old)
    return {
        "tokens": 1000 * (min(token.received for token in new) - received),
        "steps": 1000 * (min(token.computed for token in new) - ended),
        "idle": 1000 * (move["times"]["resume"][1] - ended),
    }


def longest(record: Record) -> dict[str, float]:
    """The longest time in ms between two tokens of a stream, as received, by the label of a switch
    that was under way then, and "none". The later switch counts."""
    found: dict[str, float] = {}
    for tokens in record.streams.values():
        at = 0
        for one, other in itertools.pairwise(tokens):
            while at < len(record.switches) and record.switches[at]["ended"] < one.received:
                at += 1
            label = "none"
            for switch in record.switches[at:]:
                if switch["began"] > other.received:
                    break
                label = switch["label"]
            gap = 1000 * (other.received - one.received)
            found[label] = max(gap, found.get(label, 0.0))
    return found


def figures(run: Run, record: Record) -> None:
    """Rows by label. Each value is in ms."""
    by_label: dict[str, list[dict[str, float]]] = {}
    for move in record.moves:
        times = {phase: 1000 * move["seconds"][phase] for phase in PHASES} | gaps(record, move)
        by_label.setdefault(move["label"], []).append(times)
        run.report.record("switch", label=move["label"], ms=times, times=move["times"])
    run.report.head("ms", *PHASES, "idle", "steps", "tokens")
    for label, rows in by_label.items():
        for what, value in (("median", statistics.median), ("most", max)):
            cells = [
                float(value([row[name] for row in rows if name in row] or [0.0]))
                for name in (*PHASES, "idle", "steps", "tokens")
            ]
            run.report.row(f"{len(rows)} {label}: {what}", *cells)
    run.report.head("ms: longest between two tokens", "of a stream")
    for label, gap in sorted(longest(record).items()):
        run.report.row(f"switch: {label}", gap)
        run.report.record("longest", label=label, ms=gap)
    goal(run, [row["idle"] for row in by_label.get("keep", []) if "idle" in row])


def goal(run: Run, idle: list[float]) -> None:
    middle = statistics.median(idle) if idle else None
    within = sum(ms <= GAP_MS for ms in idle)
    found = "no switch" if middle is None else f"{middle:.1f} ms, {within} of {len(idle)} within"
    run.report.check(
        middle is not None and (run.host or middle <= GAP_MS),
        f"with keep no step runs for at most {GAP_MS:g} ms, in the median: {found}",
    )
