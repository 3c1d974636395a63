"""What gpuwm-serve passes, and what it refuses: HTTP, forms, streams, limits."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import pathlib
import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import made_up_engine
import pytest
from conftest import eventually
from serving_models import Serve, serving

from gpuwm.serve.proxy import HELD_BODIES

CHAT = "/v1/chat/completions"
BODY_BYTES = 1 << 20
AT_ONCE = 400


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Two models that are always awake, and small limits."""
    with serving({"models": {"a": {}, "b": {}}, "serve": {"body_bytes": BODY_BYTES}}) as found:
        yield found


def raw(serve: Serve, text: bytes) -> tuple[int, bytes]:
    """Status and body of the answer to bytes that may be no valid request."""
    with socket.create_connection(("127.0.0.1", serve.port), 30) as connection:
        connection.sendall(text)
        return read(connection)


def read(connection: socket.socket) -> tuple[int, bytes]:
    with http.client.HTTPResponse(connection) as answer:
        answer.begin()
        return answer.status, answer.read()


def head(*lines: str, path: str = CHAT) -> bytes:
    first = f"POST {path} HTTP/1.1"
    return "\r\n".join([first, "Host: x", *lines, "", ""]).encode()


def asked(body: bytes, *lines: str) -> bytes:
    return head(f"Content-Length: {len(body)}", "Connection: close", *lines) + body


# ---- which model ---------------------------------------------------------------------------------


def test_an_unknown_model_is_404_with_the_names_there_are(serve: Serve) -> None:
    status, found = serve.ask({"model": "c"})
    assert status == 404
    assert found["error"] == {
        "message": "there is no model 'c': there are a, b",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    assert serve.ask(path="/v1/models/c")[0] == 404


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model": "a", "model": "b"}', "names more than one model"),
        (b'{"model": "a", "mod\\u0065l": "b"}', "names more than one model"),
        (b'{"messages": [{"model": "a"}]}', "names no model"),
        (b'{"model": 1}', "names no model"),
        (b'[["model", "a"]]', "no JSON object"),
        (b"", "no JSON in UTF-8"),
        (b"{", "no JSON in UTF-8"),
        ('{"model": "a"}'.encode("utf-16"), "no JSON in UTF-8"),
        (b"[" * 100_000, "no JSON in UTF-8"),
    ],
)
def test_a_body_that_names_no_model_or_two_is_400(serve: Serve, body: bytes, said: str) -> None:
    status, found = serve.ask(body, method="POST")
    assert status == 400
    assert said in found["error"]["message"]


def form(*fields: tuple[str, str]) -> tuple[bytes, dict[str, str]]:
    parts = [
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields
    ]
    return "".join([*parts, "--x--\r\n"]).encode(), {
        "Content-Type": "multipart/form-data; boundary=x"
    }


def test_the_model_of_a_form(serve: Serve) -> None:
    body, headers = form(("file", "model\r\n\r\nb"), ("model", "a"))
    status, found = serve.ask(body, "/echo", headers)
    assert (status, found["body"]) == (200, body.decode())
    assert "multipart/form-data; boundary=x" in found["head"]
    for fields in ((("model", "a"), ("model", "b")), (("file", "a"),)):
        status, found = serve.ask(*form(*fields)[:1], "/echo", headers)
        assert status == 400
    for broken in (b"--x\r\n\r\n", b"no form at all"):
        assert serve.ask(broken, "/echo", headers)[0] == 400
    assert serve.ask(body, "/echo", {"Content-Type": "multipart/form-data"})[0] == 400


def test_every_path_goes_to_the_engine_as_it_is(serve: Serve) -> None:
    for path in ("/v1/embeddings", "/tokenize", "/v1/a%2Fb?c=%20d&e", "/v1/audio/speech"):
        assert serve.ask({"model": "b"}, path)[1]["path"] == path


def test_the_id_of_a_response_leads_to_its_engine(serve: Serve) -> None:
    status, found = serve.ask({"model": "b"}, "/v1/responses")
    assert status == 200
    assert serve.ask(path=f"/v1/responses/{found['id']}")[1]["model"] == "b"
    assert serve.ask(path=f"/v1/responses/{found['id']}/cancel", method="POST")[0] == 200
    assert serve.ask(path="/v1/responses/resp_none")[0] == 404


# ---- what is passed ------------------------------------------------------------------------------


def test_headers_of_a_connection_go_no_further(serve: Serve) -> None:
    body = b'{"model": "a"}'
    lines = [
        "X-Mine: 1",
        "Connection: close, X-Hop",
        "X-Hop: 1",
        "TE: trailers",
        "Keep-Alive: 5",
        "Authorization: Bearer mine",
        "Proxy-Connection: x",
        "Expect: 100-continue",
    ]
    status, answer = raw(serve, head(f"Content-Length: {len(body)}", *lines, path="/echo") + body)
    assert status == 200
    told = json.loads(answer)["head"].lower()
    assert "x-mine: 1" in told
    for gone in ("x-hop", "te:", "keep-alive", "proxy-connection", "expect", "bearer mine"):
        assert gone not in told


def test_a_chunked_request_has_a_length_at_the_engine(serve: Serve) -> None:
    body = b'6\r\n{"mode\r\n9\r\nl": "a"} \r\n0\r\n\r\n'
    lines = ("Transfer-Encoding: chunked", "Connection: close")
    status, answer = raw(serve, head(*lines, path="/echo") + body)
    assert status == 200
    assert json.loads(answer)["body"] == '{"model": "a"} '
    assert "content-length: 15" in json.loads(answer)["head"].lower()


def test_a_stream_passes_unchanged(serve: Serve) -> None:
    body = b'{"model": "a", "stream": true, "max_tokens": 50}'
    status, answer = raw(serve, asked(body))
    chunk = made_up_engine.LINE % b'"delta": {"content": "a "}, "finish_reason": null'
    last = made_up_engine.LINE % b'"delta": {}, "finish_reason": "stop"'
    assert (status, answer) == (200, chunk * 50 + last + b"data: [DONE]\n\n")


def test_a_request_of_a_client_that_goes_away_ends_at_the_engine(serve: Serve) -> None:
    def gone() -> int:
        found: int = serve.ask({"model": "b"}, "/counts")[1]["gone"]
        return found

    before = gone()
    body = b'{"model": "b", "stream": true, "max_tokens": 100000}'
    with socket.create_connection(("127.0.0.1", serve.port), 30) as connection:
        connection.sendall(asked(body))
        assert connection.recv(100)
    eventually(lambda: gone() == before + 1)
    eventually(lambda: serve.ask(path="/v1/models/b")[1]["in_flight"] == 0)


def test_a_slow_client_does_not_hold_its_engine(serve: Serve) -> None:
    """What it does not read waits in its connection, and the engine is done."""
    body = b'{"model": "b", "stream": true, "max_tokens": 5000}'
    with socket.create_connection(("127.0.0.1", serve.port), 30) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(asked(body))
        eventually(lambda: serve.ask(path="/v1/models/b")[1]["in_flight"] == 1)
        eventually(lambda: serve.ask(path="/v1/models/b")[1]["in_flight"] == 0)
        assert read(connection)[1].count(b"data: ") == 5002


# ---- what is refused -----------------------------------------------------------------------------


def test_a_body_has_a_limit(serve: Serve) -> None:
    large = b'{"model": "a", "x": "' + b"x" * BODY_BYTES + b'"}'
    status, answer = raw(serve, head(f"Content-Length: {len(large)}"))
    assert status == 413
    assert f"more than {BODY_BYTES} bytes" in json.loads(answer)["error"]["message"]
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(large), large)
    assert raw(serve, head("Transfer-Encoding: chunked") + chunks)[0] == 413
    fits = b'{"model": "a", "x": "' + b"x" * (BODY_BYTES // 2) + b'"}'
    assert serve.ask(fits)[0] == 200


def test_all_bodies_together_have_a_limit(serve: Serve) -> None:
    """They stay as long as their requests. What they took is free afterwards."""
    large = {"model": "a", "x": "x" * (BODY_BYTES - 1024), "max_tokens": 100, "token_s": 0.03}

    async def ask(session: aiohttp.ClientSession) -> int:
        async with session.post(serve.url + CHAT, json=large) as answer:
            found = await answer.json()
            if answer.status != 200:
                assert (found["error"]["code"], answer.headers["Retry-After"]) == ("busy", "1")
            return answer.status

    async def ask_all() -> list[int]:
        async with aiohttp.ClientSession() as session:
            return await asyncio.gather(*(ask(session) for _ in range(HELD_BODIES + 4)))

    for _ in range(2):
        assert sorted(asyncio.run(ask_all())) == [200] * HELD_BODIES + [503] * 4


@pytest.mark.parametrize(
    "request_of",
    [
        head("Content-Length: 2", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
        head("Content-Length: 2", "Content-Length: 3") + b"{}",
        head("Transfer-Encoding: gzip, chunked, identity") + b"0\r\n\r\n",
        head("Content-Length: -1"),
        head("Content-Length: 1", " folded: x") + b"{",
        head("X: " + "x" * BODY_BYTES),
        *(head(f"{name}\x00: 1") for name in ("X",)),
        b"POST /" + b"x" * BODY_BYTES + b" HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01 no HTTP\r\n\r\n",
    ],
    ids=lambda request: request[:60].decode("latin-1").partition("Host: x\r\n")[2][:30],
)
def test_what_others_could_read_otherwise_is_refused(serve: Serve, request_of: bytes) -> None:
    status, _ = raw(serve, request_of)
    assert status == 400
    assert serve.said("a") == "a " * 4


def test_web_sockets_are_refused_by_name(serve: Serve) -> None:
    headers = {"Upgrade": "websocket", "Connection": "Upgrade"}
    status, found = serve.ask(path="/v1/realtime?model=a", headers=headers)
    assert status == 501
    assert "no WebSockets" in found["error"]["message"]


def test_a_token_is_asked_for(tmp_path: pathlib.Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    tables: dict[str, Any] = {"models": {"a": {}}, "serve": {"token_file": str(tmp_path / "token")}}
    with serving(tables) as serve:
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "secret"}):
            assert serve.ask({"model": "a"}, headers=headers)[0] == 401
            assert serve.ask(path="/metrics", headers=headers)[0] == 401
        assert serve.ask(path="/health")[0] == 200
        told = serve.ask({"model": "a"}, "/echo", {"Authorization": "Bearer secret"})
        assert told[0] == 200
        assert "secret" not in told[1]["head"]


def test_connections_have_a_limit() -> None:
    tables: dict[str, Any] = {"models": {"a": {}}, "serve": {"connections": 2}}
    alive = head("Connection: close", path="/health").replace(b"POST", b"GET")
    with serving(tables) as serve, contextlib.ExitStack() as stack:
        address = "127.0.0.1", serve.port
        first, _ = (stack.enter_context(socket.create_connection(address, 30)) for _ in range(2))
        eventually(lambda: raw(serve, alive)[0] == 503)
        first.close()
        eventually(lambda: raw(serve, alive)[0] == 200)


def test_more_requests_come_at_once_than_an_engine_accepts(serve: Serve) -> None:
    """The made-up engine has a short queue of connections."""

    async def ask() -> list[int]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

            async def one() -> int:
                async with session.post(serve.url + CHAT, json={"model": "a"}) as answer:
                    return answer.status

            return await asyncio.gather(*(one() for _ in range(AT_ONCE)))

    assert set(asyncio.run(ask())) == {200}
