"""The part `standby-http`: servers of one group, of which the active one is killed again and again,
each time another process of it. What a load balancer would see is measured from the kill on."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from engine import prompt
from parts import auto
from processes import Failed
from running import START_S, Run
from serving_http import flags, free_port
from standing import COST_MIB, UTILIZATION, figures
from swapping import LIMITS

REF = "standby@v1"
# In turn: the API server, the engine core, the rank, which is a process of its own with "mp".
KILLED = (0, 1, -1)
MP = {"distributed_executor_backend": "mp", "gpu_memory_utilization": UTILIZATION}
LOOK_S = 0.002
ANSWER_S = 5.0
TOKENS = 16
MODEL = "served"


class Server:
    """One engine of the group, with a port of its own."""

    def __init__(self, run: Run, number: int, lock: pathlib.Path, **llm: Any) -> None:
        self.name, self.port = f"server {number}", free_port()
        self.log = run.out / f"standby-http-{number}.log"
        environment = {**os.environ, **run.cache("swap"), "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(
                command(run, lock, self.port, llm),
                stdout=out,
                stderr=out,
                env=environment,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, bytes]:
        """Status and the first bytes of the answer; 0: nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        try:
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read1()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def report(self) -> dict[str, Any]:
        """Empty: it does not answer."""
        status, body = self.ask("GET", "/gpuwm/standby")
        found: dict[str, Any] = json.loads(body) if status == 200 else {}
        return found

    def wait_until(self, state: str) -> dict[str, Any]:
        """Failed: it ended, or has another state for too long."""
        deadline = time.monotonic() + START_S
        while (found := self.report()).get("state") != state:
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = self.log.read_text(errors="replace").splitlines()[-6:]
                raise Failed(f"{self.name} is not {state}: {found}: {' | '.join(last)}")
            time.sleep(LOOK_S)
        return found

    def first_token(self) -> bool:
        asked = {
            "model": MODEL,
            "prompt": prompt(1, 17)["prompt_token_ids"],
            "max_tokens": TOKENS,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        status, body = self.ask("POST", "/v1/completions", asked)
        return status == 200 and len(body) > 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def command(run: Run, lock: pathlib.Path, port: int, given: dict[str, Any]) -> list[str]:
    if run.standing:
        memory = lock.with_name("memory")
        memory.mkdir(exist_ok=True)
        job = {"lock": str(lock), "memory": str(memory), "port": port}
        return [sys.executable, run.standing, json.dumps(job)]
    extra = {**auto(REF), "engines": len(KILLED) + 1}
    llm = {**LIMITS, **MP, "skip_tokenizer_init": True, "max_model_len": 2048, "dtype": "bfloat16"}
    llm |= {"seed": 0, "model_loader_extra_config": extra, **given}
    if run.attention:
        llm["attention_backend"] = run.attention
    words = [sys.executable, "-m", "gpuwm.vllm", "standby", "--lock", str(lock)]
    words += [run.model("half-1"), "--served-model-name", MODEL, "--host", "127.0.0.1"]
    return [*words, "--port", str(port), "--disable-uvicorn-access-log", *flags(llm)]


def standby_http(run: Run, **llm: Any) -> None:
    """Builds the version, starts all servers, and kills active ones until one is left. llm: for all
    engines."""
    run.head()
    builder = run.engine("builds", "half-1", auto(REF), **{**LIMITS, **llm, "enforce_eager": True})
    run.way(run.measured(builder, None), "built")
    lock = run.out / "standby-http.lock"
    servers: list[Server] = []
    try:
        begin = time.monotonic()
        servers = [Server(run, n, lock, **llm) for n in range(1, len(KILLED) + 2)]
        active, others = settled(servers)
        run.report.note(f"{len(servers)} servers started at once: {time.monotonic() - begin:.1f} s")
        run.report.check(active.first_token(), f"{active.name} is active, and answers")
        rows, used = [], [run.gpus.settled_mib()]
        for which in KILLED:
            closed = [server for server in others if server.ask("GET", "/health")[0] == 503]
            run.report.check(closed == others, "each standby's /health is 503")
            label, seconds, active = take_over(active, others, which)
            others = [server for server in others if server is not active]
            rows.append((label, seconds))
            used.append(run.gpus.settled_mib())
        figures(run, "seconds from the kill", rows, "first token")
        costs(run, used)
    finally:
        for server in servers:
            server.kill()


def costs(run: Run, used: list[list[int]]) -> None:
    """used: MiB of each GPU, with one server less each time. Their KV caches differ by a block or
    none, which counts in the mean only once."""
    found = [sum(more) - sum(less) for more, less in itertools.pairwise(used)]
    run.report.record("standby-memory", used_mib=used, costs_mib=found)
    most, mean = COST_MIB * len(used[0]), sum(found) / len(found)
    run.report.check(
        run.host or mean <= most,
        f"a standby costs at most {most} MiB: {mean:.0f} MiB in the mean of {found}",
    )


def settled(servers: list[Server]) -> tuple[Server, list[Server]]:
    """Which one is active, and those that stand by, once all have started."""
    deadline = time.monotonic() + START_S
    while True:
        states = [server.report().get("state") for server in servers]
        if sorted(map(str, states)) == ["active", *["standby"] * (len(servers) - 1)]:
            active = servers[states.index("active")]
            return active, [server for server in servers if server is not active]
        if time.monotonic() > deadline:
            texts = [server.log.read_text(errors="replace")[-600:] for server in servers]
            raise Failed(f"after {START_S:g} s they are {states}: {' || '.join(texts)}")
        time.sleep(LOOK_S)


def take_over(
    active: Server, others: list[Server], which: int
) -> tuple[str, dict[str, float], Server]:
    """Seconds from the kill to each moment. All clocks are CLOCK_MONOTONIC."""
    process = active.report()["active"]["processes"][which]
    begin = time.monotonic()
    os.kill(process["pid"], signal.SIGKILL)
    deadline = begin + START_S
    healthy: list[Server] = []
    while not healthy:
        healthy = [server for server in others if server.ask("GET", "/health")[0] == 200]
        if time.monotonic() > deadline:
            raise Failed(f"no standby took over from {active.name}: {others[0].report()}")
    opened = time.monotonic()
    if not healthy[0].first_token():
        raise Failed(f"{healthy[0].name} is healthy, and does not answer")
    answered = time.monotonic()
    moments = healthy[0].wait_until("active")["moments"]
    seconds = {name: moments[name] - begin for name in ("died", "gone", "locked", "occupied")}
    seconds |= {"healthy": opened - begin, "first token": answered - begin}
    return f"{process['role']} killed", seconds, healthy[0]
