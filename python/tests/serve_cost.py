"""What gpuwm-serve costs, beside its engine asked directly and beside HAProxy, in one run.

    PYTHONPATH=python build/venv/bin/python python/tests/serve_cost.py

A made-up engine answers. Each chunk of its streams says when the engine sent it, so a client knows
how long the chunk was on its way. The three ways take turns, and medians of the rounds are told: so
other work on the machine meets all of them. The process between has one core, and the engine and
the clients another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import pathlib
import platform
import re
import resource
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence

from conftest import cpu_seconds, eventually
from serving_models import Serve, serving

STREAMS = 256
TOKENS, TOKEN_S = 50, 0.05  # 5,120 chunks a second of all streams
FLOOD_TOKENS = 400  # as fast as the engine can
OPEN = 5000
ROUNDS = 5
SENT = re.compile(rb'"content": "(\d+) "')  # in nanoseconds of the engine's clock
END = b"data: [DONE]"
HAPROXY_PROGRAM = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
HAPROXY = """
global
    maxconn 8000
    nbthread 1
defaults
    mode http
    timeout connect 10s
    timeout client 1h
    timeout server 1h
frontend front
    bind 127.0.0.1:{port}
    default_backend engine
backend engine
    http-reuse never
    server engine unix@{socket}
"""


@dataclasses.dataclass(frozen=True)
class Way:
    """To the engine: a port, or a socket. pid: of the process that its chunks go through."""

    address: int | str
    pid: int


class Stream(asyncio.Protocol):
    """One request. delays: of its chunks, in milliseconds; first: of the first chunk since the
    request was sent."""

    def __init__(self, request: bytes) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened = False
        self.delays: list[float] = []
        self.first = 0.0
        self._request, self._sent_ns = request, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self._sent_ns = time.monotonic_ns()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic_ns()
        if not self.opened:
            self.opened, self.first = True, (now - self._sent_ns) / 1e6
        self.delays += [(now - int(sent)) / 1e6 for sent in SENT.findall(data)]
        if END in data:
            self.done.set_result(None)
            self._transport.close()

    def end(self) -> None:
        self.done.cancel()
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the stream ended before its end"))


async def stream(way: Way, tokens: int, token_s: float) -> Stream:
    """A stream that has begun."""
    body = b'{"model": "a", "stream": true, "max_tokens": %d, "token_s": %f}' % (tokens, token_s)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
    made = functools.partial(Stream, head % len(body) + body)
    loop = asyncio.get_running_loop()
    if isinstance(way.address, str):
        return (await loop.create_unix_connection(made, way.address))[1]
    return (await loop.create_connection(made, "127.0.0.1", way.address))[1]


class Figures:
    """Of many streams. seconds: of the clock; processor: of the process that they went through."""

    def __init__(
        self, streams: Sequence[Stream], chunks: int, seconds: float, processor: float
    ) -> None:
        delays = [delay for each in streams for delay in each.delays]
        firsts = [each.first for each in streams]
        self.delay_p50, self.delay_p99 = _quantiles(delays)
        self.first_p50, self.first_p99 = _quantiles(firsts)
        self.rate = chunks / seconds
        self.processor_us = processor / chunks * 1e6


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    found = statistics.quantiles(values, n=100)
    return found[49], found[98]


async def ask(way: Way, clients: int, tokens: int, token_s: float, turns: int = 2) -> Figures:
    """Each client asks for one stream after the other. They began one after the other, so what they
    ask for comes evenly; the first stream of each, while others have yet to begin, does not
    count."""
    period = tokens * token_s
    began, used = 0.0, 0.0
    found: list[Stream] = []

    async def client(number: int) -> None:
        nonlocal began, used
        await asyncio.sleep(period * number / clients)
        for turn in range(1 + turns):
            if turn == 1 and not began:
                began, used = time.monotonic(), cpu_seconds(way.pid)
            each = await stream(way, tokens, token_s)
            await each.done
            found.extend([each] if turn else [])

    await asyncio.gather(*(client(number) for number in range(clients)))
    used = cpu_seconds(way.pid) - used
    return Figures(found, len(found) * tokens, time.monotonic() - began, used)


async def hold(way: Way, streams: int) -> float:
    """How many MiB the process has while so many streams are open."""
    found = [await stream(way, 1_000_000, 2.0) for _ in range(streams)]
    while not all(each.opened for each in found):
        await asyncio.sleep(0.1)
    mib = resident(way.pid)
    for each in found:
        each.end()
    return mib


def resident(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


# ---- the three ways ------------------------------------------------------------------------------


@contextlib.contextmanager
def ways() -> Iterator[Mapping[str, Way]]:
    """The process between has a core of its own, if there are two. haproxy is missing if it is not
    installed."""
    how = {"clock": True, "backlog": 4096}
    with serving({"models": {"a": {"how": how, "at_start": True}}}) as serve:
        serve.said("a")
        (engine,) = (serve.folder / "run").glob("a.0.*.sock")
        found = {"engine": Way(str(engine), serve.engine("a")), "serve": Way(serve.port, serve.pid)}
        with contextlib.ExitStack() as stack:
            if HAPROXY_PROGRAM:
                found["haproxy"] = stack.enter_context(haproxy(serve, engine))
            cores = sorted(os.sched_getaffinity(0))
            for way in found.values():
                os.sched_setaffinity(way.pid, cores[:1])
            for pid in (0, found["engine"].pid):
                os.sched_setaffinity(pid, cores[-1:])
            yield found


@contextlib.contextmanager
def haproxy(serve: Serve, engine: pathlib.Path) -> Iterator[Way]:
    assert HAPROXY_PROGRAM is not None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    file = serve.folder / "haproxy.cfg"
    file.write_text(HAPROXY.format(port=port, socket=engine))
    process = subprocess.Popen([HAPROXY_PROGRAM, "-q", "-db", "-f", str(file)])
    try:
        eventually(lambda: listens(port))
        yield Way(port, process.pid)
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# ---- a table -------------------------------------------------------------------------------------


def main() -> None:
    assert HAPROXY_PROGRAM, "there is no haproxy: scripts/deps operators"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, {platform.machine()}, kernel {platform.release()}; load {load}")
    paced: dict[str, list[Figures]] = {}
    flood: dict[str, list[Figures]] = {}
    with ways() as found:
        for _ in range(ROUNDS):
            for name, way in found.items():
                told = asyncio.run(ask(way, STREAMS, TOKENS, TOKEN_S))
                paced.setdefault(name, []).append(told)
                told = asyncio.run(ask(way, STREAMS, FLOOD_TOKENS, 0))
                flood.setdefault(name, []).append(told)
        print(
            f"| {STREAMS} streams, {STREAMS / TOKEN_S:,.0f} chunks a second | " + " | ".join(found)
        )
        for what in ("delay_p50", "delay_p99", "first_p50", "first_p99", "processor_us"):
            print(row(f"{what}", what, paced))
        print(row("flood: chunks a second", "rate", flood, 0))
        print(row("flood: processor_us", "processor_us", flood))
        for name in ("serve", "haproxy"):
            before, mib = resident(found[name].pid), asyncio.run(hold(found[name], OPEN))
            print(f"{name} with {OPEN:,} open streams: {mib:.0f} MiB ({before:.0f} without)")


def row(title: str, what: str, of: Mapping[str, Sequence[Figures]], digits: int = 2) -> str:
    medians = (statistics.median(getattr(each, what) for each in told) for told in of.values())
    return f"| {title} | " + " | ".join(f"{each:,.{digits}f}" for each in medians)


if __name__ == "__main__":
    main()
