"""An engine of vLLM for gpuwm-serve: its client, scheduler and sleep are vLLM's own, its ranks are
`stepping.Worker`. It answers completions with the tokens of its version.

    python -m tests_vllm.serve_engine SOCKET NAME MODEL
"""

from __future__ import annotations

import asyncio
import pathlib
import sys

from aiohttp import web

from .test_control import Controlled
from .test_switching_requests import answer_of


async def serve(engine: Controlled, path: str, name: str) -> None:
    """Until the process is ended."""

    async def complete(request: web.Request) -> web.Response:
        asked = await request.json()
        answer = await answer_of(await engine.ask(asked["max_tokens"]))
        return web.json_response({"model": name, "tokens": answer.tokens})

    async def health(_: web.Request) -> web.Response:
        return web.json_response({})

    application = web.Application()
    application.router.add_post("/v1/completions", complete)
    application.router.add_get("/health", health)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    made = Controlled(pathlib.Path(sys.argv[3]))
    made.run(serve(made, sys.argv[1], sys.argv[2]))
