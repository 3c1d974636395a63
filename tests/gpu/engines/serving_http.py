"""serving.py's engine as a server: `vllm serve`, asked and switched over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from engine import Options, prompt, tell

READY_S = 170.0  # a cold compilation
LOOK_S = 0.1
END_S = 20.0
MODEL = "served"
PROMPT = 17  # tokens


def flags(llm: dict[str, Any]) -> list[str]:
    """The arguments of vllm.LLM as vllm serve takes them."""
    found = []
    for name, value in llm.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            found += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return found


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Server:
    """Started by the constructor, with its log among this process's."""

    def __init__(self, options: Options) -> None:
        llm = dict(options.llm)
        model, port = llm.pop("model"), free_port()
        self.url = f"http://127.0.0.1:{port}"
        words = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model]
        words += ["--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)]
        words += ["--disable-uvicorn-access-log", *flags(llm)]
        environment = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}
        self._process = subprocess.Popen(words, env=environment)

    async def ready(self, session: Any) -> None:
        """RuntimeError: it ended, or does not answer in time."""
        deadline = time.monotonic() + READY_S
        while not await self._healthy(session):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vllm serve is not ready: status {self._process.poll()}")
            await asyncio.sleep(LOOK_S)

    async def _healthy(self, session: Any) -> bool:
        try:
            async with session.get(f"{self.url}/health") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Client:
    """One session of aiohttp for all streams."""

    def __init__(self, url: str, session: Any) -> None:
        self.url, self._session = url, session

    async def generate(
        self, number: int, tokens: int
    ) -> AsyncIterator[tuple[list[int], float | None, str | None]]:
        asked = {
            "model": MODEL,
            "prompt": prompt(number, PROMPT)["prompt_token_ids"],
            "max_tokens": tokens,
            "temperature": 0.0,
            "ignore_eos": True,
            "stream": True,
            "return_token_ids": True,
        }
        async with self._session.post(f"{self.url}/v1/completions", json=asked) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {(await answer.text())[:200]}")
            async for line in answer.content:
                data = line.removeprefix(b"data:").strip()
                if not data or data == b"[DONE]":
                    continue
                found = json.loads(data)
                if "error" in found:
                    raise RuntimeError(str(found["error"])[:200])
                for choice in found["choices"]:
                    yield choice.get("token_ids") or [], None, choice["finish_reason"]


async def run(options: Options, times: dict[str, float], serve: Any) -> None:
    """serve(client, options, generate): until there is nothing more to do."""
    import aiohttp

    begin = time.perf_counter()
    server = Server(options)
    # A stream lasts as long as the engine serves, and no answer has a limit: the driver has one.
    unlimited = aiohttp.ClientTimeout(total=None)
    try:
        async with aiohttp.ClientSession(timeout=unlimited, read_bufsize=1 << 20) as session:
            await server.ready(session)
            times["vllm serve"] = time.perf_counter() - begin
            tell("started", seconds=times)
            client = Client(server.url, session)
            await serve(client, options, lambda engine, *what: engine.generate(*what))
        tell("ending")
    finally:
        server.end()
