"""What a client gets while its model wakes, and what the log says of requests."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from conftest import eventually
from serving_models import Serve, serving

COMMENT = ": the model wakes\n\n"
EACH_S = {"Gpuwm-Comments": "1"}
ASKED: dict[str, Any] = {"model": "slow", "stream": True, "messages": []}
START_S = 1.5


@pytest.fixture
def serve() -> Iterator[Serve]:
    """One model takes its time to start, another one never does."""
    slow = {"how": {"start_s": START_S}}
    never = {"how": {"start_s": 3600}, "start": 1.2}
    with serving({"models": {"slow": slow, "never": never}}) as found:
        yield found


def test_comments_come_while_a_model_wakes_if_asked_for(serve: Serve) -> None:
    status, told = serve.ask(ASKED, headers=EACH_S)
    plain = serve.ask(ASKED)[1]
    assert (status, told.replace(COMMENT, "")) == (200, plain)
    assert told.startswith(COMMENT)
    # None while it is awake, however long the stream takes.
    assert serve.ask({**ASKED, "token_s": START_S / 4}, headers=EACH_S) == (200, plain)


def test_an_error_after_a_comment_is_an_event(serve: Serve) -> None:
    status, found = serve.ask({**ASKED, "model": "never"}, headers=EACH_S)
    assert status == 200
    assert re.match(f'({COMMENT})+data: {{"error": {{"message": "model never could not wake', found)
    assert serve.ask({**ASKED, "model": "never"})[0] == 503
    with openai.OpenAI(
        base_url=f"{serve.url}/v1", api_key="none", max_retries=0, default_headers=EACH_S
    ) as client:
        stream = client.chat.completions.create(model="slow", messages=[], stream=True)
        assert [chunk.choices[0].delta.content for chunk in stream][:4] == ["slow "] * 4


def test_an_answer_that_is_no_stream_is_an_event_after_a_comment(serve: Serve) -> None:
    given = {**EACH_S, "Accept-Encoding": "gzip"}
    status, found = serve.ask(ASKED, "/echo", given)
    assert status == 200
    assert re.match(f'({COMMENT})+data: {{"head": "POST /echo HTTP/1.1', found)
    assert "gzip" not in found
    assert "gpuwm-comments" not in found.lower()


@pytest.mark.parametrize(
    ("every", "body", "said"),
    [
        ("0", ASKED, "a number of seconds from 1 to 300"),
        ("-1", ASKED, "a number of seconds from 1 to 300"),
        ("301", ASKED, "a number of seconds from 1 to 300"),
        ("1", {"model": "slow"}, 'is for streams: {"stream": true}'),
        ("1", {"model": "slow", "stream": "yes"}, 'is for streams: {"stream": true}'),
    ],
)
def test_comments_that_can_t_be_had_are_refused(
    serve: Serve, every: str, body: Any, said: str
) -> None:
    status, found = serve.ask(body, headers={"Gpuwm-Comments": every})
    assert status == 400
    assert said in found["error"]["message"]


def test_a_line_for_each_request_on_demand() -> None:
    slow = {"how": {"token_s": 0.05}}
    logged = {"log_requests": True}
    with serving({"models": {"a": slow}, "serve": logged}) as serve:
        serve.said("a")
        serve.ask({"model": "b"}, "/v1/x%0Ay?key=secret")
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            gone = thread.submit(serve.ask, {"model": "a", "max_tokens": 1000}, seconds=0.2)
            assert isinstance(gone.exception(), TimeoutError)
        eventually(lambda: "gone" in serve.text())
        lines = re.findall(r"127\.0\.0\.1 (.*), waited ([\d.]+) s of ([\d.]+) s", serve.text())
    assert [line for line, *_ in lines] == [
        "POST /v1/chat/completions: model a, 200",
        "POST /v1/x%0Ay: model -, 404",
        "POST /v1/chat/completions: model a, gone",
    ]
    assert 0 < float(lines[0][1]) < float(lines[0][2])


def test_no_line_for_requests_by_default(serve: Serve) -> None:
    serve.said("slow")
    assert "POST" not in serve.text()
