"""10,000 requests over ten models in a budget for three, while engines, gpuwm-serve and gpuwmd
die."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import os
import random
import re
import signal
import time
from typing import Any

import aiohttp
import numpy as np
from conftest import Daemon, eventually, running
from serving_models import Serve, is_alive, serving

import gpuwm
from gpuwm.serve import gpuwmd

SEED = 46
REQUESTS = 10_000
AT_ONCE = 300
NAMES = [f"m{number}" for number in range(10)]
KILL_EVERY = 400  # requests; a fast machine ends them all within seconds
GPUWMDS = 5  # of these kills one kills gpuwmd, and the others an engine
SERVED_AT = (REQUESTS // 3, REQUESTS // 3 * 2)  # after how many requests gpuwm-serve is killed
TIMES = {"min_awake": 0.05, "drain": 0.5, "sleep": 5, "wake": 5, "start": 20}
# What a busy machine adds to a request, besides what it waited for its model.
SLACK_S = 30.0


class Storm:
    """outcomes: how many requests ended how. longest: the longest that one took."""

    def __init__(self, serve: Serve, daemon: Daemon) -> None:
        self.serve, self.daemon = serve, daemon
        self.random = random.Random(SEED)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.longest = 0.0
        self.kills = self.gpuwmds = 0
        self.wrong: list[str] = []
        self._left = REQUESTS

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            clients = [asyncio.create_task(self._ask_on(session)) for _ in range(AT_ONCE)]
            await asyncio.gather(*clients)

    async def _ask_on(self, session: aiohttp.ClientSession) -> None:
        while self._left:
            self._left -= 1
            if self._left in SERVED_AT:
                self.serve.signal(signal.SIGKILL)
                self.serve.start()
            name = self.random.choice(NAMES[: self.random.randint(1, len(NAMES))])
            began = time.monotonic()
            outcome = await self._ask(session, name, began)
            self.outcomes[outcome] += 1
            if self.outcomes.total() % KILL_EVERY == 0:
                self._kill()

    async def _ask(self, session: aiohttp.ClientSession, name: str, began: float) -> str:
        tokens, stream = self.random.randint(1, 5), self.random.random() < 0.3
        body = {"model": name, "max_tokens": tokens, "stream": stream}
        try:
            async with session.post(f"{self.serve.url}/v1/chat/completions", json=body) as answer:
                text = await answer.text()
            self.longest = max(self.longest, time.monotonic() - began)
        except (aiohttp.ClientError, OSError):
            return "broken"
        if answer.status != 200:
            if not json.loads(text)["error"]["message"]:
                self.wrong.append(text)
            await asyncio.sleep(int(answer.headers.get("Retry-After", 0)))
            return f"error {answer.status}"
        if stream:
            if not text.endswith("data: [DONE]\n\n"):
                return "broken"
            said = "".join(re.findall(r'"content": "([^"]*)"', text))
        else:
            said = json.loads(text)["choices"][0]["message"]["content"]
        if said != f"{name}@v1 " * tokens:
            self.wrong.append(f"{name}: {text}")
        return "served"

    def _kill(self) -> None:
        if self.random.randrange(GPUWMDS) == 0:
            with contextlib.suppress(ProcessLookupError):  # the last kill was a moment ago
                os.kill(self.daemon.child(), signal.SIGKILL)
                self.gpuwmds += 1
            return
        found = dict(re.findall(r"(m\d)\.0 .*?: pid (\d+)", self.serve.text()))
        pids = [int(pid) for pid in found.values() if is_alive(int(pid))]
        if pids:
            os.kill(self.random.choice(pids), signal.SIGKILL)
            self.kills += 1


def test_no_request_is_lost_without_an_error_or_answered_by_another_model() -> None:
    with running(keeper=True) as daemon:
        for name in NAMES:
            daemon.load(f"{name}@v1", {"weight": np.ones(1 << 10, np.uint8)})
        with serving({"models": models(daemon), "devices": {}}) as serve:
            serve.write_port()
            rows = serve.ask(path="/v1/models")[1]["data"]
            storm = Storm(serve, daemon)
            asyncio.run(storm.run())
            assert storm.wrong == []
            assert storm.outcomes.total() == REQUESTS
            assert storm.outcomes["served"] > REQUESTS * 0.8, storm.outcomes
            assert storm.longest < max(row["wakes_within_seconds"] for row in rows) + SLACK_S
            assert storm.kills > 10
            assert storm.gpuwmds > 1
            # All of them serve when it is over.
            for name in NAMES:
                eventually(functools.partial(answers, serve, name))


def answers(serve: Serve, name: str) -> bool:
    """One that was killed several times has a pause before it is tried again."""
    status, found = serve.ask({"model": name})
    if status != 200:
        assert "has failed" in found["error"]["message"]
        return False
    said: str = found["choices"][0]["message"]["content"]
    return said == f"{name}@v1 " * 4


def models(daemon: Daemon) -> dict[str, Any]:
    """Their leases and their room are gpuwmd's, which has room for three of them."""
    device = "host" if daemon.device == "host" else "0"
    takes = gpuwmd.budgets(gpuwm.connect(), [device])[device] * 3 // 10
    return {
        name: {
            **TIMES,
            "how": {"gpuwmd": f"{name}@v1", "room": takes},
            "devices": [device],
            "memory": takes,
        }
        for name in NAMES
    }
