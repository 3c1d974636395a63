"""Clients that people have: the package openai, LiteLLM's, LangChain's, and curl. tests/clients.sh
has all of these packages."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from serving_models import Serve, serving

MESSAGES: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]

TOOL: openai.types.chat.ChatCompletionFunctionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {"of": {"type": "string"}}},
    },
}


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
            assert pieces == [*[f"{name} "] * 4, None]
        with pytest.raises(openai.NotFoundError, match="there are a, b") as caught:
            client.chat.completions.create(model="c", messages=MESSAGES)
        assert caught.value.code == "model_not_found"


def test_openai_with_tools_and_files(serve: Serve) -> None:
    """The request reaches the engine as the client has made it."""
    with openai.OpenAI(base_url=f"{serve.url}", api_key="none", max_retries=0) as client:
        told = client.post("/echo", cast_to=object, body={"model": "a", "tools": [TOOL]})
        assert isinstance(told, dict)
        assert json.loads(told["body"])["tools"] == [TOOL]


def test_openai_calls_tools(serve: Serve) -> None:
    with openai.OpenAI(base_url=f"{serve.url}/v1", api_key="none", max_retries=0) as client:
        answer: Any = client.chat.completions.create(model="a", messages=MESSAGES, tools=[TOOL])
        assert answer.choices[0].message.tool_calls[0].function.name == "weather"
        stream = client.chat.completions.create(
            model="b", messages=MESSAGES, tools=[TOOL], stream=True
        )
        called = [call for chunk in stream for call in chunk.choices[0].delta.tool_calls or ()]
        assert [call.function and call.function.arguments for call in called] == ['{"of": "it"}']


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
            assert [chunk.choices[0].delta.content async for chunk in stream][:4] == ["b "] * 4

    asyncio.run(ask())


@pytest.mark.filterwarnings("ignore")  # its own, of what it imports and leaves open
def test_litellm(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without it, the import asks GitHub for prices.
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm: Any = pytest.importorskip("litellm")
    given: dict[str, Any] = {"messages": MESSAGES, "max_retries": 0}
    given.update(api_base=f"{serve.url}/v1", api_key="none")
    for name in "ab":
        model = f"openai/{name}"
        answer = litellm.completion(model=model, **given)
        assert answer.choices[0].message.content == f"{name} " * 4
        pieces = [
            chunk.choices[0].delta for chunk in litellm.completion(model, stream=True, **given)
        ]
        assert "".join(piece.content or "" for piece in pieces) == f"{name} " * 4
    answer = litellm.completion("openai/a", tools=[TOOL], **given)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"of": "it"}')
    answer = asyncio.run(litellm.acompletion(model="openai/b", **given))
    assert answer.choices[0].message.content == "b " * 4
    with pytest.raises(litellm.NotFoundError, match="there are a, b"):
        litellm.completion("openai/c", **given)
    # As its proxy has them, with names of its own.
    listed = {"model": "openai/b", "api_base": f"{serve.url}/v1", "api_key": "none"}
    router = litellm.Router(model_list=[{"model_name": "judge", "litellm_params": listed}])
    answer = router.completion(model="judge", messages=MESSAGES)
    assert answer.choices[0].message.content == "b " * 4
    del router
    gc.collect()  # an event loop that it leaves open tells now, and not in another test


@pytest.mark.filterwarnings("ignore")
def test_langchain(serve: Serve) -> None:
    langchain: Any = pytest.importorskip("langchain_openai")
    for name in "ab":
        client = langchain.ChatOpenAI(
            model=name, base_url=f"{serve.url}/v1", api_key="none", max_retries=0
        )
        assert client.invoke("hi").content == f"{name} " * 4
        assert "".join(chunk.content for chunk in client.stream("hi")) == f"{name} " * 4
        (call,) = client.bind_tools([TOOL]).invoke("hi").tool_calls
        assert (call["name"], call["args"]) == ("weather", {"of": "it"})

    async def ask() -> None:
        client = langchain.ChatOpenAI(model="a", base_url=f"{serve.url}/v1", api_key="none")
        assert (await client.ainvoke("hi")).content == "a " * 4
        assert [chunk.content async for chunk in client.astream("hi")][:2] == ["a ", "a "]

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
