"""Running engines as a switch sees them: an `LLM`, a client of vLLM's asynchronous engine, or the
URL of a server."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Protocol

from .. import errors

Answers = list[dict[str, Any]]
KEEP, FINISH = "keep", "finish"
# vLLM's names for what becomes of requests that are in flight.
_PAUSES = {KEEP: "keep", FINISH: "wait"}
# vLLM's server waits that much less for its workers than the client for the server, so that the
# client hears which rank is late.
_HTTP_MARGIN_S = 2.0


class Target(Protocol):
    """An engine. Its methods are coroutines that, but for the asynchronous client, never wait for
    an event loop. They raise what vLLM raises, and gpuwm.Error."""

    name: str

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        """The answers of all ranks. TimeoutError."""
        ...

    async def pause(self, mode: str, timeout: float | None) -> None:
        """Returns when no step runs and none begins, and all caches of what the old weights
        computed are empty. In KEEP requests that are in flight compute their KV anew when they go
        on; in FINISH they have ended. TimeoutError."""
        ...

    async def resume(self) -> None: ...


def target_of(target: Any) -> Target:
    """Invalid: it is none of the three."""
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
    """A `vllm.LLM`. Nothing else may call it meanwhile."""

    def __init__(self, llm: Any) -> None:
        self.name = "the LLM"
        self._llm = llm

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        found: Answers = self._llm.collective_rpc(method, timeout=timeout, args=tuple(arguments))
        return found

    async def pause(self, mode: str, timeout: float | None) -> None:
        engine = self._llm.llm_engine
        if mode == FINISH and engine.has_unfinished_requests():
            raise errors.Busy(
                "requests of the LLM are in flight, and only its own steps finish them",
                'finish them first (LLM.generate does), or give mode="keep"',
            )
        self._llm.sleep(level=0, mode="keep")  # the scheduler alone
        # Level 0 leaves all caches.
        self._llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
        engine.reset_mm_cache()
        engine.reset_encoder_cache()

    async def resume(self) -> None:
        self._llm.wake_up(["scheduling"])


class Client:
    """vLLM's asynchronous engine, in this process or another."""

    def __init__(self, client: Any) -> None:
        self.name = "the engine"
        self._client = client

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        found: Answers = await self._client.collective_rpc(
            method, timeout=timeout, args=tuple(arguments)
        )
        return found

    async def pause(self, mode: str, timeout: float | None) -> None:
        pausing = self._client.pause_generation(mode=_PAUSES[mode], clear_cache=True)
        try:
            await asyncio.wait_for(pausing, timeout)
        except asyncio.TimeoutError:  # of its own before Python 3.11
            raise TimeoutError(f"still not idle after {timeout:g} s") from None

    async def resume(self) -> None:
        await self._client.resume_generation()


class Server:
    """`vllm serve`, by HTTP. It needs VLLM_SERVER_DEV_MODE=1, and the ranks' half of a switch."""

    def __init__(self, url: str) -> None:
        self.name = self._url = url.rstrip("/")
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise errors.Invalid(f"{url!r} is no URL of a server", "begin it with http://")

    async def call(self, method: str, arguments: list[str], timeout: float) -> Answers:
        body = {"method": method, "args": arguments, "timeout": timeout}
        found = self._post("/collective_rpc", body, timeout + _HTTP_MARGIN_S)
        try:
            results = json.loads(found)["results"]
            if all(isinstance(each, dict) for each in results):
                return list(results)
        except (ValueError, KeyError, TypeError):
            pass
        raise errors.Error(
            f"{self._url}/collective_rpc answered {found[:200]!r}", "is it a server of vLLM?"
        )

    async def pause(self, mode: str, timeout: float | None) -> None:
        self._post(f"/pause?mode={_PAUSES[mode]}&clear_cache=true", None, timeout)

    async def resume(self) -> None:
        self._post("/resume", None, _RESUME_S)

    def _post(self, path: str, body: Any, timeout: float | None) -> bytes:
        request = urllib.request.Request(
            self._url + path,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                found: bytes = answer.read()
                return found
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(path, error.code, error.read()) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, (TimeoutError, socket.timeout)):
                raise TimeoutError(f"{self._url}{path} did not answer in {timeout:g} s") from None
            raise errors.Unreachable(f"{self._url}{path}: {reason}", "is the server up?") from None

    def _refused(self, path: str, code: int, text: bytes) -> errors.Error:
        remedy = "its log says why"
        if code == http.client.NOT_FOUND:
            remedy = "start the server with VLLM_SERVER_DEV_MODE=1 in its environment"
        elif path == "/collective_rpc":
            remedy += "; it needs --worker-extension-cls gpuwm.vllm.Extension"
        said = " ".join(text.decode(errors="replace").split())[:200]
        return errors.Error(f"{self._url}{path} answered {code}: {said}", remedy)


_RESUME_S = 30.0  # for what takes milliseconds
