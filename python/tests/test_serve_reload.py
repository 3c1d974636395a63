"""models.toml changes while gpuwm-serve serves, and no request is lost."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import eventually
from serving_models import Serve, is_alive, serving

SLOW = {"how": {"token_s": 0.02}}
LONG = 40  # tokens
OTHER = {"how": {"token_s": 0.02, "other": True}}  # the same engine by another command line


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Two models, of which one can be awake."""
    with serving({"models": {"a": SLOW, "b": SLOW}}, slots=1) as found:
        yield found


def reload(serve: Serve, models: dict[str, Any]) -> None:
    """By the signal, which takes less time than a command."""
    before = serve.text().count("was read again")
    serve.write({"models": models})
    serve.hang_up()
    eventually(lambda: serve.text().count("was read again") > before)


def refused(serve: Serve) -> str:
    done = serve.command("reload")
    assert done.returncode == 1
    return done.stderr


def test_new_models_appear_and_others_are_gone(serve: Serve) -> None:
    serve.said("a")
    first = serve.engine("a")
    reload(serve, {"b": SLOW, "c": SLOW})
    assert serve.ask({"model": "a"})[0] == 404
    assert [row["id"] for row in serve.ask(path="/v1/models")[1]["data"]] == ["b", "c"]
    assert serve.said("c") == "c " * 4
    eventually(lambda: not is_alive(first))


def test_a_command_does_it_too(serve: Serve) -> None:
    serve.write({"models": {"b": {}, "c": {}}})
    done = serve.command("reload")
    assert (done.returncode, done.stdout) == (0, "serves b, c\n")
    assert serve.said("c") == "c " * 4


def test_a_model_that_is_gone_ends_after_its_requests(serve: Serve) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        running = threads.submit(serve.said, "a", max_tokens=LONG)
        eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
        waiting = threads.submit(serve.said, "b", max_tokens=LONG)
        eventually(lambda: serve.ask(path="/v1/models/b")[1]["queued"])
        pid = serve.engine("a")
        reload(serve, {"c": {}})
        assert serve.said("c") == "c " * 4
        assert running.result() == "a " * LONG
        assert waiting.result() == "b " * LONG
    eventually(lambda: not is_alive(pid))
    assert "a is leaving, with 1 requests" in serve.text()


def test_an_engine_with_another_command_line_takes_the_place_of_the_one_that_runs(
    serve: Serve,
) -> None:
    """While that one sleeps with a request which is longer than `drain`, and goes on."""
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        running = threads.submit(serve.said, "a", max_tokens=LONG)
        eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
        waiting = threads.submit(serve.said, "b")
        eventually(lambda: serve.ask(path="/v1/models/b")[1]["queued"])
        first = serve.engine("a")
        reload(serve, {"a": OTHER, "b": OTHER})
        assert serve.said("a") == "a " * 4
        assert serve.engine("a") != first
        assert waiting.result() == "b " * 4
        assert serve.said("b") == "b " * 4
        assert serve.text().count("b.0 starts") == 1
        assert running.result() == "a " * LONG
    eventually(lambda: not is_alive(first))
    assert serve.said("a") == "a " * 4


def test_engines_that_were_leaving_are_taken_back(serve: Serve) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        running = thread.submit(serve.said, "a", max_tokens=5 * LONG)
        eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
        first = serve.engine("a")
        reload(serve, {"a": OTHER, "b": SLOW})
        reload(serve, {"a": SLOW, "b": SLOW})
        assert serve.ask(path="/v1/models/a")[1]["in_flight"] == 1
        assert running.result() == "a " * (5 * LONG)
    assert serve.said("a") == "a " * 4
    assert serve.engine("a") == first


def test_times_count_at_once_and_engines_stay(serve: Serve) -> None:
    serve.said("a")
    first = serve.engine("a")
    reload(serve, {"a": {**SLOW, "idle": 0.05}, "b": {**SLOW, "priority": 3}})
    eventually(lambda: serve.state("a") == "asleep")
    assert serve.said("a") == "a " * 4
    assert serve.engine("a") == first


def test_a_model_that_now_stays_awake_wakes(serve: Serve) -> None:
    reload(serve, {"a": {**SLOW, "stays_awake": True}})
    eventually(lambda: serve.state("a") == "awake")


def test_a_file_with_an_error_changes_nothing(serve: Serve) -> None:
    serve.said("a")
    first = serve.engine("a")
    serve.write({"models": {"a": {"idel": 1}}})
    assert "models.a.idel: the keys are source" in refused(serve)
    serve.hang_up()
    eventually(lambda: serve.text().count("the models stay as they are: ") == 2)
    serve.file.write_text("[models")
    assert "is no TOML" in refused(serve)
    serve.write({"models": {"a": {"command": ["no-such-program", "{socket}"]}}})
    assert "models.a: there is no program no-such-program" in refused(serve)
    serve.write({"models": {"a": SLOW}, "serve": {"body_bytes": 1}})
    assert "serve.body_bytes changes only with a start" in refused(serve)
    serve.write({"models": {"a": {"engine": "vllm", "source": "x/a"}}})
    assert "engines need gpuwmd now: start gpuwm-serve again" in refused(serve)
    serve.file.unlink()
    assert "can't be read: No such file" in refused(serve)
    assert serve.said("a") == "a " * 4
    assert serve.engine("a") == first


def test_the_token_changes(tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    tables: dict[str, Any] = {"models": {"a": {}}, "serve": {"token_file": str(token)}}
    with serving(tables) as serve:
        token.write_text("two")
        assert serve.command("reload").returncode == 0
        assert serve.ask({"model": "a"}, headers={"Authorization": "Bearer one"})[0] == 401
        assert serve.ask({"model": "a"}, headers={"Authorization": "Bearer two"})[0] == 200


def test_an_engine_that_is_leaving_and_dies_is_not_started_again(serve: Serve) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        running = thread.submit(serve.ask, {"model": "a", "max_tokens": 1000})
        eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
        reload(serve, {"b": SLOW})
        serve.kill_engine("a")
        assert running.result()[0] == 502
        assert serve.said("b") == "b " * 4
    assert serve.text().count("a.0 starts") == 1
