"""One engine of vLLM that serves streams without an end, and is switched meanwhile: vLLM's
asynchronous engine in this process or, with the option `http`, a server (serving_http.py).

It imports torch and vLLM, and then takes its options, the JSON of engine.Options, from the first
line of its stdin. `streams` requests are always in flight: when one ends, the next one begins. It
prints lines "@ JSON" among vLLM's log:
    ready       it waits for its options
    started     seconds of each step
    switched    how a switch went
    recorded    the file `answers` has everything, and no request is in flight
Further lines: "switch REF MODE" calls gpuwm.vllm.switch_async, and answers when each stream has got
more tokens; "record" ends the streams. All times are seconds of CLOCK_MONOTONIC, which the engine's
process has too."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import importlib
import json
import pathlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import serving_http
from engine import Options, imports, prompt, take_options, tell

PROMPT = 17  # tokens
APART = 28  # each further stream's answers are longer by the first stream's, divided by this
AFTER = 8  # tokens that each stream gets after a switch before the next one may come
AFTER_S = 10.0  # for them; an engine that stands still is reported by the checks
LOOK_S = 0.005

# (token ids, when the step that computed them ended, why the answer ends)
Piece = tuple[list[int], float | None, str | None]
Generate = Callable[[Any, int, int], AsyncIterator[Piece]]


@dataclasses.dataclass
class Request:
    """items: [when it was received, when its step ended or None, token ids]. reason: why it ended.
    error: why it failed."""

    stream: int
    number: int
    wanted: int
    asked: float
    items: list[Any] = dataclasses.field(default_factory=list)
    reason: str | None = None
    error: str = ""


class Streams:
    """generate(engine, number, tokens): the pieces of the answer to the prompt of that number.
    tokens: of each answer of the first stream."""

    def __init__(self, engine: Any, count: int, tokens: int, generate: Generate) -> None:
        self._engine, self._generate = engine, generate
        self._tokens, self._apart = tokens, max(1, tokens // APART)
        self.requests: list[Request] = []
        self.received = [0] * count  # tokens of each stream
        self._ending = False
        self._tasks = [asyncio.create_task(self._stream(n)) for n in range(count)]

    async def _stream(self, stream: int) -> None:
        while not self._ending:
            number = len(self.requests)
            wanted = self._tokens + self._apart * stream  # streams don't end at the same time
            request = Request(stream, number, wanted, time.monotonic())
            self.requests.append(request)
            try:
                async for tokens, computed, reason in self._generate(self._engine, number, wanted):
                    request.items.append([time.monotonic(), computed, tokens])
                    request.reason = reason
                    self.received[stream] += len(tokens)
            except Exception as error:
                request.error = f"{type(error).__name__}: {error}"
                return

    async def more(self) -> bool:
        """Whether each stream, but for those that failed, got AFTER more tokens in time."""
        goal = [received + AFTER for received in self.received]
        deadline = time.monotonic() + AFTER_S
        while any(
            now < then and not task.done()
            for now, then, task in zip(self.received, goal, self._tasks, strict=True)
        ):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def end(self) -> None:
        """After the requests that are in flight."""
        self._ending = True
        await asyncio.gather(*self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class Watched:
    """An engine as a switch sees it. times: when each call began and returned, by its name."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.times: dict[str, list[float]] = {}

    async def sleep(self, **how: Any) -> None:
        await self._timed("drain", self._engine.sleep(**how))

    async def pause_generation(self, **how: Any) -> None:
        await self._timed("pause", self._engine.pause_generation(**how))

    async def wake_up(self, **how: Any) -> None:
        await self._timed("resume", self._engine.wake_up(**how))

    async def is_sleeping(self) -> bool:
        return bool(await self._engine.is_sleeping())

    async def collective_rpc(self, method: str, **what: Any) -> Any:
        return await self._timed(method, self._engine.collective_rpc(method, **what))

    async def _timed(self, name: str, call: Coroutine[Any, Any, Any]) -> Any:
        begin = time.monotonic()
        try:
            return await call
        finally:
            self.times[name] = [begin, time.monotonic()]


async def switch(engine: Any, ref: str, mode: str) -> dict[str, Any]:
    """What became of it; `error` is the class of gpuwm's error, or empty."""
    import gpuwm
    from gpuwm.vllm._switch import switch, switch_async

    watched = Watched(engine)
    times = watched.times
    found: dict[str, Any] = {"ref": ref, "mode": mode, "began": time.monotonic(), "error": ""}
    try:
        if url := getattr(engine, "url", None):
            switched = await asyncio.to_thread(switch, url, ref, mode=mode)
            times = laps(found["began"], switched.seconds)
        else:
            switched = await switch_async(watched, ref, mode=mode)
        found |= {"moved": switched.moved, "seconds": switched.seconds}
    except gpuwm.Error as error:
        found |= {"error": type(error).__name__, "message": str(error), "moved": False}
    return {**found, "ended": time.monotonic(), "times": times}


def laps(began: float, seconds: dict[str, float]) -> dict[str, list[float]]:
    """When each phase began and ended; one follows the other."""
    found = {}
    for phase, took in seconds.items():
        found[phase] = [began, began + took]
        began += took
    return found


async def serve(engine: Any, options: Options, generate: Generate) -> None:
    """Until stdin ends."""
    streams = Streams(engine, options.streams, options.tokens, generate)
    switches = []
    while words := (await asyncio.to_thread(sys.stdin.readline)).split():
        if words[0] == "switch":
            found = await switch(engine, words[1], words[2])
            switches.append(found)
            tell("switched", **found, served=await streams.more())
        elif words == ["record"]:
            await streams.end()
            requests = [dataclasses.asdict(request) for request in streams.requests]
            record = {"requests": requests, "switches": switches}
            pathlib.Path(options.answers).write_text(json.dumps(record))
            tell("recorded", requests=len(requests))
        else:
            raise ValueError(f"serving.py knows 'switch REF MODE' and 'record', not {words}")
    streams.cancel()


# ---- vLLM ---------------------------------------------------------------------------------------


async def generate(engine: Any, number: int, tokens: int) -> AsyncIterator[Piece]:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    parameters = SamplingParams(
        temperature=0.0,
        max_tokens=tokens,
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )
    async for output in engine.generate(prompt(number, PROMPT), parameters, str(number)):
        completion = output.outputs[0]
        # The engine's process takes this time when it has the tokens of a step.
        computed = output.metrics.last_token_ts if output.metrics else None
        yield list(completion.token_ids), computed, completion.finish_reason


async def run(options: Options, times: dict[str, float]) -> None:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    begin = time.perf_counter()
    # Requests have times only if statistics are on.
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**options.llm, disable_log_stats=False))
    times["AsyncLLM()"] = time.perf_counter() - begin
    tell("started", seconds=times)
    # A collection would stop all streams, and look as if the engine had.
    gc.freeze()
    gc.disable()
    try:
        await serve(engine, options, generate)
        tell("ending")
    finally:
        with contextlib.suppress(Exception):
            engine.shutdown()


def main() -> None:
    times = imports()
    importlib.import_module("vllm.v1.engine.async_llm")
    options = take_options()
    if options.http:
        asyncio.run(serving_http.run(options, times, serve))
    else:
        asyncio.run(run(options, times))


if __name__ == "__main__":
    main()
