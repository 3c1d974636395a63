"""Clients that people have: the package openai, and curl."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator

import openai
import pytest
from serving_models import Serve, serving

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Two models, of which one can be awake."""
    with serving({"models": {"a": {}, "b": {}}}, slots=1) as found:
        yield found


def test_openai(serve: Serve) -> None:
    with openai.OpenAI(base_url=f"{serve.url}/v1", api_key="none", max_retries=0) as client:
        assert [each.id for each in client.models.list()] == ["a", "b"]
        for name in "ab":
            answer = client.chat.completions.create(model=name, messages=MESSAGES)
            assert answer.choices[0].message.content == f"{name} " * 4
            stream = client.chat.completions.create(model=name, messages=MESSAGES, stream=True)
            pieces = [chunk.choices[0].delta.content for chunk in stream]
            assert pieces == [f"{name} "] * 4
        with pytest.raises(openai.NotFoundError, match="there are a, b") as caught:
            client.chat.completions.create(model="c", messages=MESSAGES)
        assert caught.value.code == "model_not_found"


def test_openai_with_tools_and_files(serve: Serve) -> None:
    """The request reaches the engine as the client has made it."""
    tool: openai.types.chat.ChatCompletionFunctionToolParam = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object", "properties": {}}},
    }
    with openai.OpenAI(base_url=f"{serve.url}", api_key="none", max_retries=0) as client:
        told = client.post("/echo", cast_to=object, body={"model": "a", "tools": [tool]})
        assert isinstance(told, dict)
        assert json.loads(told["body"])["tools"] == [tool]


def test_openai_asynchronously(serve: Serve) -> None:
    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=f"{serve.url}/v1", api_key="none") as client:
            asked = (
                client.chat.completions.create(model=name, messages=MESSAGES) for name in "abab"
            )
            answers = await asyncio.gather(*asked)
            told = [each.choices[0].message.content for each in answers]
            assert told == [f"{name} " * 4 for name in "abab"]
            stream = await client.chat.completions.create(model="b", messages=MESSAGES, stream=True)
            assert [chunk.choices[0].delta.content async for chunk in stream] == ["b "] * 4

    asyncio.run(ask())


def test_curl(serve: Serve) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("needs curl")

    def run(*words: str) -> str:
        url = f"{serve.url}/v1/chat/completions"
        done = subprocess.run(
            [curl or "", "-sS", url, *words], capture_output=True, text=True, check=True
        )
        return done.stdout

    told = json.loads(run("-d", '{"model": "b", "messages": []}'))
    assert told["choices"][0]["message"]["content"] == "b " * 4
    assert "data: [DONE]" in run("-N", "-d", '{"model": "a", "stream": true}')
    # curl asks with Expect, and sends a large body only after the answer to that.
    large = json.dumps({"model": "a", "x": "x" * (2 << 20)})
    told = subprocess.run(
        [curl, "-sS", f"{serve.url}/v1/chat/completions", "-d", "@-"],
        input=large,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(told)["model"] == "a"
