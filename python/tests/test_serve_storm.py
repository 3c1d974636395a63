"""10,000 requests over ten models in a budget for three, while engines and gpuwm-serve die."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import re
import signal
import time

import aiohttp
from serving_models import Serve, is_alive, serving

SEED = 46
REQUESTS = 10_000
AT_ONCE = 300
NAMES = [f"m{number}" for number in range(10)]
KILL_EVERY = 400  # requests; a fast machine ends them all within seconds
SERVED_AT = (REQUESTS // 3, REQUESTS // 3 * 2)  # after how many requests gpuwm-serve is killed
TIMES = {"min_awake": 0.05, "drain": 0.5, "sleep": 5, "wake": 5, "start": 20}
# What a busy machine adds to a request, besides what it waited for its model.
SLACK_S = 30.0


class Storm:
    """outcomes: how many requests ended how. longest: the longest that one took."""

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.random = random.Random(SEED)
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.longest = 0.0
        self.kills = 0
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
        if said != f"{name} " * tokens:
            self.wrong.append(f"{name}: {text}")
        return "served"

    def _kill(self) -> None:
        found = dict(re.findall(r"(m\d)\.0 .*?: pid (\d+)", self.serve.text()))
        pids = [int(pid) for pid in found.values() if is_alive(int(pid))]
        if pids:
            os.kill(self.random.choice(pids), signal.SIGKILL)
            self.kills += 1


def test_no_request_is_lost_without_an_error_or_answered_by_another_model() -> None:
    with serving({"models": dict.fromkeys(NAMES, TIMES)}, slots=3) as serve:
        serve.write_port()
        rows = serve.ask(path="/v1/models")[1]["data"]
        storm = Storm(serve)
        asyncio.run(storm.run())
        assert storm.wrong == []
        assert storm.outcomes.total() == REQUESTS
        assert storm.outcomes["served"] > REQUESTS * 0.8, storm.outcomes
        assert storm.longest < max(row["wakes_within_seconds"] for row in rows) + SLACK_S
        assert storm.kills > 10
        # All of them serve when it is over.
        for name in NAMES:
            assert serve.said(name) == f"{name} " * 4
