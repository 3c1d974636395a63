"""What a switch relies on in vLLM: which requests its client, its routes and its scheduler keep.
All of these are vLLM's own; the rank below is `stepping.Worker`."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import importlib.util
import itertools
import pathlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import gpuwm
import gpuwm.vllm

from .steps import BLOCK, END, LONGEST, other

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn

PROMPT = [5] * (2 * BLOCK + 1)
CACHED = 2 * BLOCK  # tokens of it
MOST = LONGEST - len(PROMPT)
TOKENS = 4  # of a short answer
HOLDS_S = 30.0  # for what takes milliseconds
DRAIN_S = 0.1  # for requests that don't end
KINDS = ("client", "url")


@dataclasses.dataclass
class Answer:
    tokens: list[int]
    cached: int | None  # tokens of the prompt
    reason: str | None


class Serving:
    """vLLM's engine, and a server with its routes for development, in one event loop."""

    def __init__(self, model: pathlib.Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._numbers = itertools.count()
        self.run(self._start(model))

    def run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(call)

    async def _start(self, model: pathlib.Path) -> None:
        import fastapi
        from aiohttp import web
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM
        from vllm.v1.executor.uniproc_executor import UniProcExecutor

        arguments = AsyncEngineArgs(
            model=str(model),
            worker_cls="tests_vllm.stepping.Worker",
            max_model_len=LONGEST,
            hf_overrides={"max_position_embeddings": LONGEST},
            skip_tokenizer_init=True,
            enforce_eager=True,
            async_scheduling=False,  # the rank has no such outputs
        )
        # On a CPU vLLM would take one process more, for the rank.
        config = arguments.create_engine_config()
        self.engine = AsyncLLM(config, UniProcExecutor, log_stats=True)
        app = fastapi.FastAPI()
        app.state.engine_client = self.engine
        for route in _routes():
            app.include_router(route)
        self._server = web.ServerRunner(web.Server(lambda request: _served(app, request)))
        await self._server.setup()
        await web.TCPSite(self._server, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._server.addresses[0][1]}"

    def end(self) -> None:
        self.engine.shutdown()
        self.run(self._server.cleanup())
        self._loop.close()
        # vLLM closes nothing itself, so Python's collector does, and warns. These tests ignore
        # warnings, others don't: it has to collect here.
        del self.engine, self._server
        gc.collect()

    async def ask(self, tokens: int = MOST) -> asyncio.Task[Answer]:
        """The answer to a request that has been sent: what is sent later comes later."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        parameters = SamplingParams(
            max_tokens=tokens,
            stop_token_ids=[END],
            ignore_eos=True,  # the model's own
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt: Any = {"prompt_token_ids": PROMPT}
        pieces = await self.engine.add_request(str(next(self._numbers)), prompt, parameters)
        return asyncio.create_task(_read(pieces))

    async def ask_rank(self, method: str) -> Any:
        return (await self.engine.collective_rpc(method))[0]

    async def switch(self, kind: str, **options: Any) -> gpuwm.vllm.Switched:
        """To the other version."""
        if kind == "client":
            return await gpuwm.vllm.switch_async(self.engine, "m@other", **options)
        return await asyncio.to_thread(gpuwm.vllm.switch, self.url, "m@other", **options)

    def is_awake(self) -> bool:
        """As vLLM's metrics say."""
        from vllm.v1.metrics.reader import get_metrics_snapshot

        (state,) = [
            metric.value
            for metric in get_metrics_snapshot()
            if metric.name == "vllm:engine_sleep_state" and metric.labels["sleep_state"] == "awake"
        ]
        return bool(state)


def _routes() -> list[Any]:
    from vllm.entrypoints.serve.dev.rpc.api_router import router as rpc
    from vllm.entrypoints.serve.dev.sleep.api_router import router as sleep

    if importlib.util.find_spec("vllm.entrypoints.rl") is not None:  # 0.32
        from vllm.entrypoints.rl.online.api_router import router as pause
    else:
        from vllm.entrypoints.serve.dev.rlhf.api_router import router as pause
    return [rpc, sleep, pause]


async def _served(app: Any, request: Any) -> Any:
    """By an application of the kind that vLLM's is (ASGI)."""
    from aiohttp import web

    headers = request.headers.items()
    scope = {
        "type": "http",
        "method": request.method,
        "path": request.path,
        "query_string": request.query_string.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers],
    }
    content = await request.read()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": content}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent)
    return web.Response(status=sent[0]["status"], body=body)


async def _read(pieces: Any) -> Answer:
    answer = Answer([], None, None)
    while answer.reason is None:
        piece = await pieces.get()
        answer.tokens += piece.outputs[0].token_ids
        answer.reason = piece.outputs[0].finish_reason
        if answer.cached is None:
            answer.cached = piece.num_cached_tokens
    return answer


async def answer_of(request: asyncio.Task[Answer]) -> Answer:
    return await asyncio.wait_for(request, HOLDS_S)


async def until(holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    async def look() -> None:
        while not await holds():
            await asyncio.sleep(0)

    await asyncio.wait_for(look(), HOLDS_S)


@pytest.fixture(scope="module")
def serving(checkpoints: pathlib.Path) -> Iterator[Serving]:
    found = Serving(checkpoints / "dense")
    yield found
    found.end()


@pytest.mark.parametrize("kind", KINDS)
def test_requests_end_and_those_that_come_meanwhile_wait(serving: Serving, kind: str) -> None:
    async def finish() -> None:
        old = await serving.ask_rank("begin")
        first = await serving.ask()
        again = await (await serving.ask(TOKENS))
        assert again == Answer([old] * TOKENS, CACHED, "length")
        switching = asyncio.create_task(serving.switch(kind, mode="finish"))
        await until(serving.engine.is_sleeping)
        second = await serving.ask(TOKENS)
        await serving.ask_rank("end_requests")
        assert (await switching).id == str(other(old))
        assert await answer_of(second) == Answer([other(old)] * TOKENS, 0, "length")
        ended = await answer_of(first)
        assert (set(ended.tokens), ended.reason) == ({old, END}, "stop")
        assert await serving.ask_rank("has_emptied") == ["mm", "encoder"]
        assert serving.is_awake()

    serving.run(finish())


@pytest.mark.parametrize("kind", KINDS)
def test_requests_go_on_with_the_new_weights(serving: Serving, kind: str) -> None:
    async def keep() -> None:
        old = await serving.ask_rank("begin")
        first = await serving.ask()
        switching = asyncio.create_task(serving.switch(kind))
        second = await serving.ask(TOKENS)  # before the pause, in it or after it
        assert (await switching).id == str(other(old))
        assert (await answer_of(second)).reason == "length"
        third = await answer_of(await serving.ask(TOKENS))
        assert third.tokens == [other(old)] * TOKENS
        await serving.ask_rank("end_requests")
        ended = await answer_of(first)
        versions = [version for version, _ in itertools.groupby(ended.tokens)]
        assert (versions, ended.reason) == ([old, other(old), END], "stop")
        assert await serving.ask_rank("has_emptied") == ["mm", "encoder"]
        assert serving.is_awake()

    serving.run(keep())


@pytest.mark.parametrize("kind", [*KINDS, "cancelled"])
def test_an_engine_whose_requests_do_not_end_goes_on(serving: Serving, kind: str) -> None:
    async def give_up() -> None:
        old = await serving.ask_rank("begin")
        first = await serving.ask()
        if kind == "cancelled":
            switching = asyncio.create_task(serving.switch("client", mode="finish"))
            await until(serving.engine.is_sleeping)
            second = await serving.ask(TOKENS)
            switching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await switching
        else:
            switching = asyncio.create_task(serving.switch(kind, mode="finish", drain=DRAIN_S))
            second = await serving.ask(TOKENS)
            with pytest.raises(gpuwm.TimedOut, match="not idle"):
                await switching
        assert not await serving.engine.is_sleeping()
        assert (await answer_of(second)).tokens == [old] * TOKENS
        await serving.ask_rank("end_requests")
        assert set((await answer_of(first)).tokens) == {old, END}

    serving.run(give_up())
