"""Switching a server by its URL."""

from __future__ import annotations

import pytest
from switched import (
    Engine,
    Server,
    engine,
    raising,
    server,
)

import gpuwm
import gpuwm.vllm
from gpuwm.vllm import _switch, targets

__all__ = ["engine", "server"]  # fixtures


@pytest.mark.parametrize("path", ["/collective_rpc", "/sleep", "/pause"])
def test_a_server_without_its_development_mode(engine: Engine, server: Server, path: str) -> None:
    server.lacks = path
    with pytest.raises(gpuwm.Error, match=f"{path}.* answered 404.*VLLM_SERVER_DEV_MODE=1"):
        gpuwm.vllm.switch(server.url, "llama@v2", mode="finish")
    assert engine.is_as_before


def test_a_server_without_the_extension(engine: Engine, server: Server) -> None:
    engine.fails["gpuwm_prepare", -1] = raising(AttributeError("gpuwm_prepare"))
    with pytest.raises(gpuwm.Error, match=r"answered 500: gpuwm_prepare: .*--worker-extension-cls"):
        gpuwm.vllm.switch(server.url, "llama@v2")


@pytest.mark.parametrize(
    ("path", "said"), [("/sleep", r"not idle in 0\.1 s"), ("/pause", r"not be paused in 1 s")]
)
def test_a_server_that_answers_late(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch, path: str, said: str
) -> None:
    monkeypatch.setattr(_switch, "COMMIT_S", 1)
    server.hangs = path
    with pytest.raises(gpuwm.TimedOut, match=said):
        gpuwm.vllm.switch(server.url, "llama@v2", mode="finish", drain=0.1)
    assert engine.is_as_before


def test_a_pause_that_comes_after_the_resume(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_switch, "COMMIT_S", 0.3)
    server.late = "/pause"
    with pytest.raises(gpuwm.TimedOut, match=r"not be paused in 0\.3 s; it goes on"):
        gpuwm.vllm.switch(server.url, "llama@v2")
    assert engine.did[1:] == ["wake", "pause keep", "wake", "settle old"]
    assert engine.is_as_before


def test_a_server_that_does_not_say_whether_it_is_paused(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "ANSWER_S", 0.2)
    server.hangs = "/is_sleeping"
    with pytest.raises(gpuwm.TimedOut, match="could not tell whether it is paused: .* no answer"):
        gpuwm.vllm.switch(server.url, "llama@v2")
    assert engine.is_as_before


def test_a_server_that_does_not_serve_now(engine: Engine, server: Server) -> None:
    server.away = True
    with pytest.raises(gpuwm.Unreachable, match="answered 503"):
        gpuwm.vllm.switch(server.url, "llama@v2")


def test_nobody_at_the_url() -> None:
    with pytest.raises(gpuwm.Unreachable, match="is the server up"):
        gpuwm.vllm.switch("http://127.0.0.1:9", "llama@v2")


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"results": ["None"]}', b'{"results": 1}'])
def test_something_else_at_the_url(
    engine: Engine, server: Server, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    monkeypatch.setattr(targets.Server, "_send", lambda *_: answer)
    with pytest.raises(gpuwm.Error, match="is it a server of vLLM"):
        gpuwm.vllm.switch(server.url, "llama@v2")
