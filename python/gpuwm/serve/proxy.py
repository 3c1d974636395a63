"""HTTP: a request goes to the engine of the model that it names, and the answer comes back as the
engine sends it.

The body is read once, up to a limit. A request whose client goes away is ended at the engine. A
request is sent once: if the engine goes away after the first byte, the client gets an error.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import hmac
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aiohttp
import yarl
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from .metrics import CONTENT_TYPE, Metrics
from .models import COMMAND, Config
from .supervisor import Engine
from .turns import NotServed, Turns

log: logging.Logger = logging.getLogger("gpuwm.serve")

# RFC 9110, 7.6.1: what is about one connection, and goes no further.
HOP_BY_HOP = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    )
)
COMMENTS = "Gpuwm-Comments"  # each so many seconds while the model wakes: a client's header
# What gpuwm-serve sets itself when it asks an engine.
OWN = frozenset({"host", "content-length", "expect", "authorization", COMMENTS.lower()})
COMMENTS_S = range(1, 301)
COMMENT = b": the model wakes\n\n"
HELD_BODIES = 16  # of the largest size: what all requests together may have gpuwm-serve hold
BODY_S = 300.0  # for a whole body: 64 MiB take as long at 1.8 Mbit/s
HEAD_S = 60.0  # from a connection to its first request
STALL_S = 60.0  # a client that takes nothing for so long is gone
# What a client may be behind of an answer. The engine goes on meanwhile.
BEHIND_BYTES = 1 << 20
IDS_MAX = 10_000  # ids of responses that are remembered; each takes some 200 bytes
ID_BYTES = 4096  # of an answer, in which its id stands
RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[\w-]{1,200})"')
EVENTS = "text/event-stream"
MODELS = "/v1/models"
# Of vLLM and SGLang, besides those below /v1: all others are for operators.
PATHS = frozenset(
    (
        *("/tokenize", "/detokenize", "/rerank", "/v2/rerank", "/score", "/classify", "/pooling"),
        *("/generate", "/invocations"),
    )
)
NO_PATHS = frozenset(("/v1/load_lora_adapter", "/v1/unload_lora_adapter"))
RESPONSES = re.compile(r"/v1/responses/([^/]+)(?:/.*)?")
MODEL_BYTES_MAX = 1024  # of the name in a form


class Problem(Exception):
    """What a client is told, in OpenAI's form."""

    def __init__(
        self, status: int, message: str, code: str = "", param: str = "", retry_after: float = 0
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.retry_after: float = retry_after
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": param or None, "code": code or None}
        self.body: dict[str, Any] = {"error": error}

    def answer(self) -> web.Response:
        answer = web.json_response(self.body, status=self.status)
        if self.retry_after:
            answer.headers["Retry-After"] = str(math.ceil(self.retry_after))
        if self.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer


class Proxy:
    """The application."""

    def __init__(self, turns: Turns, metrics: Metrics) -> None:
        self.turns: Turns = turns
        self._metrics = metrics
        self.on_request: Callable[[web.Request], None] = lambda request: None
        self._ids: collections.OrderedDict[str, str] = collections.OrderedDict()
        self._held = 0  # bytes of the bodies of all requests

    @property
    def config(self) -> Config:
        return self.turns.config

    def application(self) -> web.Application:
        made = web.Application()
        made.router.add_route("*", r"/{path:[\s\S]*}", self.handle)
        return made

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.on_request(request)
        began, status = time.monotonic(), "gone"
        try:
            answer = await self._handle(request)
            status = str(answer.status)
        finally:
            self._held -= request.get("held", 0)
            if self.config.log_requests:
                what = (request.remote, request.method, request.rel_url.raw_path)
                waited, took = request.get("waited", 0.0), time.monotonic() - began
                how = (request.get("model", "-"), status, waited, took)
                log.info("%s %s %s: model %s, %s, waited %.3f s of %.3f s", *what, *how)
        return answer

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        try:
            self._check(request)
            if request.method in ("GET", "HEAD"):
                own = self._own(request.path)
                if own is not None:
                    return own
            return await self._pass(request)
        except Problem as problem:
            return problem.answer()
        except Exception:
            log.exception("a request for %s", request.path)
            return Problem(500, "gpuwm-serve has failed: its log says how").answer()

    def _check(self, request: web.Request) -> None:
        given = request.headers.get("Authorization", "")
        token = self.config.token
        if token and request.path != "/health":
            wanted = f"Bearer {token}".encode()
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), wanted):
                raise Problem(401, "the bearer token is missing or wrong", "invalid_api_key")
        if "upgrade" in request.headers:
            raise Problem(501, "gpuwm-serve passes no WebSockets: ask the engine itself")

    # ---- its own paths ----

    def _own(self, path: str) -> web.Response | None:
        if path == "/health":
            return web.json_response({"status": "ok"})
        if path == "/metrics":
            return web.Response(body=self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})
        if path == MODELS:
            rows = [self._model(name) for name in self.config.models]
            return web.json_response({"object": "list", "data": rows})
        if path.startswith(f"{MODELS}/"):
            return web.json_response(self._model(path.removeprefix(f"{MODELS}/")))
        return None

    def _model(self, name: str) -> dict[str, Any]:
        self.known(name)
        standing = self.turns.standing(name)
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "gpuwm",
            "state": standing.state.value,
            "wakes_within_seconds": self.turns.bound(name),
            "queued": self.turns.queued(name),
            "in_flight": self.turns.in_flight(name),
        }

    def known(self, name: str) -> None:
        if name not in self.config.models:
            names = ", ".join(self.config.models)
            raise Problem(
                404, f"there is no model {name!r}: there are {names}", "model_not_found", "model"
            )

    # ---- requests for engines ----

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        name = await self._name(request, body)
        self.known(name)
        if not passes(self.config.models[name].engine, request.path):
            raise Problem(404, f"gpuwm-serve passes no requests for {request.path}")
        request["model"] = name
        early, answer = _early(request, body), None
        try:
            while answer is None:
                self.known(name)  # models.toml may have been read again
                async with self._turn(request, name, early) as engine:
                    answer = await self._ask(request, body, name, engine, early)
        except (NotServed, Problem) as error:
            problem = error if isinstance(error, Problem) else not_served(error)
            self._metrics.answered(name, problem.status)
            if early is None or not early.prepared:
                raise problem from None
            await early.write(_event(json.dumps(problem.body).encode()))
            return early
        self._metrics.answered(name, answer.status)
        return answer

    @contextlib.asynccontextmanager
    async def _turn(
        self, request: web.Request, name: str, early: web.StreamResponse | None
    ) -> AsyncIterator[Engine]:
        """As that of `turns`, with comments as long as the request waits."""
        began = time.monotonic()
        comments = None if early is None else asyncio.create_task(_comment(request, early))
        try:
            async with self.turns.turn(name) as engine:
                request["waited"] = time.monotonic() - began
                await _end(comments)
                yield engine
        finally:
            await _end(comments)

    async def _body(self, request: web.Request) -> bytes:
        """The whole body, or a Problem."""
        try:
            return await asyncio.wait_for(self._read(request), BODY_S)
        except asyncio.TimeoutError:
            raise Problem(408, f"the body did not come within {BODY_S:g} s") from None

    async def _read(self, request: web.Request) -> bytes:
        self._hold(request, request.content_length or 0)
        chunks, size = [], 0
        async for chunk in request.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            self._hold(request, size)
        return b"".join(chunks)

    def _hold(self, request: web.Request, size: int) -> None:
        """The request has, or is going to have, a body of so many bytes."""
        most, held = self.config.body_bytes, request.get("held", 0)
        if size > most:
            raise Problem(413, f"the body has more than {most} bytes, which is serve.body_bytes")
        if self._held + size - held > HELD_BODIES * most:
            raise Problem(503, "the bodies of all requests are too much", "busy", retry_after=1)
        request["held"] = max(size, held)
        self._held += request["held"] - held

    async def _name(self, request: web.Request, body: bytes) -> str:
        """Of the model that the request is for."""
        found = RESPONSES.fullmatch(request.path)
        if found:
            name = self._ids.get(found[1])
            if name is None:
                raise Problem(404, f"response {found[1]} is not known here, or no longer")
            return name
        if request.content_type.startswith("multipart/"):
            names: list[Any] = await _names_in_form(request.headers, body)
        else:
            names = _names_in_json(body)
        if len(names) > 1:
            raise Problem(400, "the request names more than one model", param="model")
        if not names or not isinstance(names[0], str):
            raise Problem(400, "the request names no model", param="model")
        return names[0]

    async def _ask(
        self,
        request: web.Request,
        body: bytes,
        name: str,
        engine: Engine,
        early: web.StreamResponse | None,
    ) -> web.StreamResponse | None:
        """None: the engine got nothing of the request, and the model has to wake again. early: the
        answer, if it has begun."""
        if not engine.is_running:
            engine.lost()
            return None
        headers = CIMultiDict(
            (key, value) for key, value in _end_to_end(request.headers) if key.lower() not in OWN
        )
        headers.update(engine.headers)
        if early is not None:
            headers.popall("Accept-Encoding", None)  # it has begun without an encoding
        answer: web.StreamResponse | None = None
        try:
            async with engine.session.request(
                request.method,
                yarl.URL(engine.url + str(request.rel_url), encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
            ) as found:
                if early is not None and early.prepared:
                    answer = early
                    if found.content_type != EVENTS:
                        await answer.write(_event(await found.read()))
                        return answer
                else:
                    answer = web.StreamResponse(status=found.status, reason=found.reason)
                    answer.headers.extend(_end_to_end(found.headers))
                await self._stream(request, answer, found, name)
        except aiohttp.ClientConnectorError as error:
            log.warning("%s does not listen: %s", engine, error)
            engine.lost()
            return None
        except (aiohttp.ClientError, OSError) as error:
            if answer is not None and answer.prepared:
                # The client sees that the answer is not whole: its connection ends within it.
                if request.transport is not None:
                    request.transport.close()
                return answer
            raise Problem(
                502, f"the engine of model {name} ended with the request", "engine_failed"
            ) from error
        return answer

    async def _stream(
        self,
        request: web.Request,
        answer: web.StreamResponse,
        found: aiohttp.ClientResponse,
        name: str,
    ) -> None:
        """Passes an answer. It returns when the engine has sent all of it: what the client is
        behind is in its connection's buffer."""
        transport = request.transport
        if transport is not None:
            transport.set_write_buffer_limits(high=BEHIND_BYTES)
        await answer.prepare(request)
        begin = b""
        async for chunk in found.content.iter_any():
            if len(begin) < ID_BYTES and request.path == "/v1/responses":
                begin += chunk[:ID_BYTES]
                self._remember(begin, name)
            write = answer.write(chunk)
            if transport is not None and transport.get_write_buffer_size() > BEHIND_BYTES:
                await _within(write, transport)
            else:
                await write

    def _remember(self, begin: bytes, name: str) -> None:
        found = RESPONSE_ID.search(begin)
        if found:
            self._ids[found[1].decode()] = name
            while len(self._ids) > IDS_MAX:
                self._ids.popitem(last=False)


def _early(request: web.Request, body: bytes) -> web.StreamResponse | None:
    """An answer that may begin while the model wakes, if the client asks for comments."""
    every = request.headers.get(COMMENTS)
    if every is None:
        return None
    if not every.isdecimal() or int(every) not in COMMENTS_S:
        raise Problem(400, f"{COMMENTS} is a number of seconds from 1 to {COMMENTS_S[-1]}")
    if not _wants_stream(body):
        raise Problem(400, f'{COMMENTS} is for streams: {{"stream": true}} in JSON', param="stream")
    return web.StreamResponse(headers={"Content-Type": EVENTS, "Cache-Control": "no-store"})


def _wants_stream(body: bytes) -> bool:
    try:
        found = json.loads(body)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("stream") is True


async def _comment(request: web.Request, early: web.StreamResponse) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await asyncio.sleep(int(request.headers[COMMENTS]))
            await early.prepare(request)
            await early.write(COMMENT)


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait((task,))


def _event(text: bytes) -> bytes:
    return b"data: " + b" ".join(text.splitlines()) + b"\n\n"


async def _within(write: Any, transport: asyncio.Transport) -> None:
    """A client that takes nothing loses its connection."""
    try:
        await asyncio.wait_for(write, STALL_S)
    except asyncio.TimeoutError:
        transport.abort()
        raise ConnectionResetError("the client takes nothing") from None


def not_served(error: NotServed) -> Problem:
    return Problem(503, str(error), "no_room", retry_after=error.retry_after or 0)


def passes(engine: str, path: str) -> bool:
    """Whether a path is one for clients. vLLM and SGLang have routes with which an operator changes
    weights, sleeps and calls any method; who has a command of his own says himself what it has."""
    if engine == COMMAND:
        return True
    path = path.rstrip("/")
    below = path.startswith("/v1/") and ".." not in path.split("/")
    return path in PATHS or (below and path not in NO_PATHS)


def _end_to_end(headers: CIMultiDictProxy[str]) -> Iterable[tuple[str, str]]:
    """Without those that are about the connection, and those that it names."""
    named = {
        each.strip().lower()
        for value in headers.getall("Connection", ())
        for each in value.split(",")
    }
    for key, value in headers.items():
        if key.lower() not in HOP_BY_HOP and key.lower() not in named:
            yield key, value


def _names_in_json(body: bytes) -> list[Any]:
    """All values of "model" in the object. An object is a list of pairs here, so that a name that
    is there twice can be seen: an engine might take the other one."""
    try:
        text = body.decode()
        found = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        raise Problem(400, "the body is no JSON in UTF-8") from None
    if not text.lstrip().startswith("{"):
        raise Problem(400, "the body is no JSON object")
    return [value for key, value in found if key == "model"]


async def _names_in_form(headers: CIMultiDictProxy[str], body: bytes) -> list[Any]:
    """All fields "model" of a form."""
    content = aiohttp.StreamReader(
        aiohttp.base_protocol.BaseProtocol(asyncio.get_running_loop()), 1 << 16
    )
    content.feed_data(body)
    content.feed_eof()
    names: list[Any] = []
    try:
        form = aiohttp.MultipartReader(headers, content)
        while (part := await form.next()) is not None:
            if not isinstance(part, aiohttp.BodyPartReader):
                raise ValueError("a form within a form")
            if part.name == "model":
                names.append((await part.read())[:MODEL_BYTES_MAX].decode())
    except (ValueError, AssertionError, aiohttp.ClientError, web.HTTPException) as error:
        raise Problem(400, f"the body is no form: {error}") from None
    return names
