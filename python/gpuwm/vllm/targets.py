"""Running engines, for a switch: an `LLM`, a client of vLLM's asynchronous engine, or the URL of a
server."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Awaitable
from typing import Any, Protocol

from .. import errors

Answers = list[dict[str, Any]]
KEEP, FINISH = "keep", "finish"
# vLLM's `wake_up` wakes this after a sleep of level 0, in which no memory sleeps.
_SCHEDULER = ["scheduling"]
# Answers of a proxy, or of a server that starts or ends: the server does not serve now.
_AWAY = (
    http.client.BAD_GATEWAY,
    http.client.SERVICE_UNAVAILABLE,
    http.client.GATEWAY_TIMEOUT,
)
# A server that hung may run a /pause that nobody waits for any more, perhaps after the /wake_up
# that was sent later. Once it answers again, it does so within this time.
LATE_S = 2.0
# How long vLLM may take for questions that it answers between two steps, and to resume.
ANSWER_S = 30.0


class Target(Protocol):
    """An engine. Its methods are coroutines; only those of the asynchronous client wait for an
    event loop. They raise what vLLM raises, gpuwm.Error and, if there is a limit, TimeoutError.

    vLLM itself gets no limit: its executor would take an answer that comes later for that of its
    next call. So a call to a `vllm.LLM` has none.
    """

    name: str
    late_s: float  # how long after its next answer it may still run a call that it has not answered

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        """The answers of all ranks."""
        ...

    async def is_stopped(self) -> bool:
        """Whether the engine is paused or asleep."""
        ...

    async def drain(self, timeout: float) -> None:
        """Returns when the requests in flight have ended. Until `resume` no other request begins:
        requests that come meanwhile wait."""
        ...

    async def pause(self, timeout: float) -> None:
        """Returns when no step runs and none begins, and all caches of what the old weights
        computed are empty. Requests in flight compute their KV anew when they go on."""
        ...

    async def resume(self) -> None:
        """Ends drain and pause, also if only one of them was called, or one failed. An engine whose
        memory sleeps (vLLM's levels 1 and 2) stays asleep."""
        ...

    async def wait(self, seconds: float) -> None: ...


def target_of(target: Any) -> Target:
    """Raises Invalid if the target is none of the three."""
    if isinstance(target, str):
        return Server(target)
    if hasattr(target, "pause_generation"):
        return Client(target)
    if hasattr(target, "llm_engine"):
        return Offline(target)
    raise errors.Invalid(
        f"{type(target).__name__} is no engine that can be switched",
        "give a vllm.LLM, a client of vLLM's engine (AsyncLLM), or the URL of a server",
    )


class Offline:
    """A `vllm.LLM`. No other thread may call it during a switch."""

    late_s: float = 0.0

    def __init__(self, llm: Any) -> None:
        self.name = "the LLM"
        self._llm = llm

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        answers: Answers = self._llm.collective_rpc(method, args=tuple(arguments))
        return answers

    async def is_stopped(self) -> bool:
        return bool(self._llm.llm_engine.is_sleeping())

    async def drain(self, timeout: float) -> None:
        if self._llm.llm_engine.has_unfinished_requests():
            raise errors.Busy(
                "requests of the LLM are in flight, and only its own steps finish them",
                'finish them first (LLM.generate does), or give mode="keep"',
            )

    async def pause(self, timeout: float) -> None:
        engine = self._llm.llm_engine
        self._llm.sleep(level=0, mode="keep")  # this puts only the scheduler to sleep
        # Level 0 does not empty the caches.
        if not self._llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True):
            raise errors.Error(
                "vLLM could not empty its prefix cache or that of its KV connector",
                "its log says why",
            )
        engine.reset_mm_cache()
        engine.reset_encoder_cache()

    async def resume(self) -> None:
        self._llm.wake_up(_SCHEDULER)

    async def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class Client:
    """vLLM's asynchronous engine, in this process or another."""

    late_s: float = 0.0

    def __init__(self, client: Any) -> None:
        self.name = "the engine"
        self._client = client

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        call = self._client.collective_rpc(method, args=tuple(arguments))
        answers: Answers = await _within(call, timeout)
        return answers

    async def is_stopped(self) -> bool:
        return bool(await _within(self._client.is_sleeping(), ANSWER_S))

    async def drain(self, timeout: float) -> None:
        # With pause_generation(mode="wait") vLLM 0.33 would refuse requests that come meanwhile.
        await _within(self._client.sleep(level=0, mode="wait"), timeout)

    async def pause(self, timeout: float) -> None:
        pause = self._client.pause_generation(mode="keep", clear_cache=True)
        await _within(pause, timeout)

    async def resume(self) -> None:
        # After resume_generation vLLM's metrics would still say that the engine sleeps, which they
        # say since `drain`.
        await _within(self._client.wake_up(tags=_SCHEDULER), ANSWER_S)

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _within(call: Awaitable[Any], timeout: float) -> Any:
    try:
        return await asyncio.wait_for(call, timeout)
    except asyncio.TimeoutError:  # before Python 3.11 it is not Python's TimeoutError
        raise TimeoutError(f"no answer in {timeout:g} s") from None


class Server:
    """`vllm serve`, by HTTP. It needs VLLM_SERVER_DEV_MODE=1, and the ranks' half of a switch."""

    late_s: float = LATE_S

    def __init__(self, url: str) -> None:
        self.name: str = url.rstrip("/")
        self._url = self.name
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise errors.Invalid(f"{url!r} is no URL of a server", "begin it with http://")

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        found = self._ask("/collective_rpc", timeout, {"method": method, "args": arguments})
        answers = found.get("results")
        if isinstance(answers, list) and all(isinstance(each, dict) for each in answers):
            return answers
        raise self._strange("/collective_rpc", found)

    async def is_stopped(self) -> bool:
        found = self._ask("/is_sleeping", ANSWER_S)
        if isinstance(found.get("is_sleeping"), bool):
            return bool(found["is_sleeping"])
        raise self._strange("/is_sleeping", found)

    async def drain(self, timeout: float) -> None:
        self._send("/sleep?level=0&mode=wait", timeout, b"")  # as Client.drain

    async def pause(self, timeout: float) -> None:
        self._send("/pause?mode=keep&clear_cache=true", timeout, b"")

    async def resume(self) -> None:
        self._send(f"/wake_up?tags={_SCHEDULER[0]}", ANSWER_S, b"")  # as Client.resume

    async def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    # ---- HTTP ----

    def _ask(self, path: str, timeout: float, body: Any = None) -> dict[str, Any]:
        text = self._send(path, timeout, None if body is None else json.dumps(body).encode())
        try:
            found = json.loads(text)
        except ValueError:
            found = text.decode(errors="replace")
        if isinstance(found, dict):
            return found
        raise self._strange(path, found)

    def _send(self, path: str, timeout: float, body: bytes | None) -> bytes:
        """Sends a request: GET if there is no body."""
        request = urllib.request.Request(
            self._url + path, data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                text: bytes = answer.read()
                return text
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(path, error.code, error.read()) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, (TimeoutError, socket.timeout)):
                raise TimeoutError(f"{self._url}{path}: no answer in {timeout:g} s") from None
            raise errors.Unreachable(f"{self._url}{path}: {reason}", "is the server up?") from None

    def _refused(self, path: str, code: int, text: bytes) -> errors.Error:
        remedy = "its log says why"
        kind = errors.Unreachable if code in _AWAY else errors.Error
        if code == http.client.NOT_FOUND:
            remedy = "start the server with VLLM_SERVER_DEV_MODE=1 in its environment"
        elif path == "/collective_rpc":
            remedy += "; was it started with --worker-extension-cls gpuwm.vllm.Extension?"
        said = " ".join(text.decode(errors="replace").split())[:200]
        return kind(f"{self._url}{path} answered {code}: {said}", remedy)

    def _strange(self, path: str, found: Any) -> errors.Error:
        return errors.Error(f"{self._url}{path} answered {found!r:.200}", "is it a server of vLLM?")
