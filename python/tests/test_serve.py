"""gpuwm-serve with made-up engines: who wakes and answers, what it starts, finds again and ends."""

from __future__ import annotations

import concurrent.futures
import functools
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import eventually
from serving_models import AWAKE_GIB, GIB, Serve, command, is_alive, serving

TAKEOVERS = 3
FIVE: dict[str, dict[str, Any]] = {"models": {name: {} for name in "abcde"}}


@pytest.fixture(scope="module")
def two_of_five() -> Iterator[Serve]:
    """Five models, of which two can be awake."""
    with serving(FIVE, slots=2) as found:
        yield found


# ---- who wakes -----------------------------------------------------------------------------------


def test_the_model_of_a_request_wakes_and_answers(two_of_five: Serve) -> None:
    for name in "abcdeabc":
        assert two_of_five.said(name) == f"{name} " * 4
        assert two_of_five.state(name) == "awake"


def test_all_are_served_that_are_asked_for_at_once(two_of_five: Serve) -> None:
    names = "abcde" * 10
    with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(two_of_five.said, names)) == [f"{name} " * 4 for name in names]


def test_the_list_of_models_says_how_they_stand(two_of_five: Serve) -> None:
    two_of_five.said("e")
    status, found = two_of_five.ask(path="/v1/models")
    assert status == 200
    assert [row["id"] for row in found["data"]] == list("abcde")
    (row,) = (row for row in found["data"] if row["id"] == "e")
    assert (row["state"], row["queued"], row["in_flight"]) == ("awake", 0, 0)
    assert row["wakes_within_seconds"] > 0


def test_a_command_wakes_a_model(two_of_five: Serve) -> None:
    two_of_five.said("a")
    two_of_five.said("b")
    done = two_of_five.command("wake", "c", "--wait")
    assert (done.returncode, done.stdout) == (0, "awake\n")
    assert two_of_five.state("c") == "awake"
    done = two_of_five.command("wake", "f")
    assert done.returncode == 1
    assert "there is no model 'f': there are a, b, c, d, e" in done.stderr
    done = two_of_five.command("wake", "a", "--folder", "/no/such")
    assert done.returncode == 1
    assert "no gpuwm-serve listens at /no/such/control" in done.stderr


def test_a_busy_model_drains_and_its_requests_are_kept() -> None:
    """A stream that is longer than `drain` goes on when its model wakes again."""
    slow = {"how": {"token_s": 0.05}, "drain": 0.2}
    with serving({"models": {"a": slow, "b": {}}}, slots=1) as serve:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            long = thread.submit(serve.said, "a", max_tokens=40)
            eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
            assert serve.said("b") == "b " * 4
            assert not long.done()
            assert long.result() == "a " * 40
        assert "a makes room for b" in serve.text()


def test_idle_models_sleep_and_end() -> None:
    with serving({"models": {"a": {"idle": 0.1, "end": 0.3}}}) as serve:
        serve.said("a")
        pid = serve.engine("a")
        eventually(lambda: serve.state("a") == "asleep")
        eventually(lambda: serve.state("a") == "ended")
        assert not is_alive(pid)
        assert serve.said("a") == "a " * 4


def test_what_can_t_ever_fit_is_refused_at_once() -> None:
    large = {"memory": 2 * AWAKE_GIB * GIB}
    tables: dict[str, Any] = {"models": {"a": large}, "devices": {"0": AWAKE_GIB * GIB}}
    said = "models.a: it takes 20.00 GiB of device 0"
    with pytest.raises(AssertionError, match=said), serving(tables):
        pass


# ---- failures ------------------------------------------------------------------------------------


def test_an_engine_that_was_killed_starts_again() -> None:
    with serving({"models": {"a": {"how": {"token_s": 0.05}}, "b": {}}}) as serve:
        serve.said("b")
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            asked = thread.submit(serve.ask, {"model": "a", "max_tokens": 1000})
            eventually(lambda: serve.ask({"model": "a"}, path="/counts")[1]["begun"])
            pid = serve.engine("a")
            os.kill(pid, signal.SIGKILL)
            status, found = asked.result()
        assert status == 502
        assert found["error"]["code"] == "engine_failed"
        assert found["error"]["message"] == "the engine of model a ended with the request"
        assert serve.said("a") == "a " * 4
        assert serve.engine("a") != pid
        assert serve.said("b") == "b " * 4


def test_an_engine_that_does_not_start_says_why() -> None:
    broken = {"command": [sys.executable, "-c", "raise SystemExit('no GPU')", "{socket}"]}
    with serving({"models": {"a": broken, "b": {}}}) as serve:
        status, found = serve.ask({"model": "a"})
        assert status == 503
        said = found["error"]["message"]
        assert "model a could not wake" in said
        assert "a.0 ended while it started" in said
        assert said.endswith("no GPU")
        status, found = serve.ask({"model": "a"})
        assert status == 503
        assert "model a has failed" in found["error"]["message"]
        assert serve.said("b") == "b " * 4


def test_an_engine_that_does_not_wake_says_why() -> None:
    with serving({"models": {"a": {"how": {"refuse": ["wake"]}}}}) as serve:
        status, found = serve.ask({"model": "a"})
        assert status == 503
        assert "could not wake: as the test wants it" in found["error"]["message"]


def test_an_engine_that_does_not_park_ends() -> None:
    with serving({"models": {"a": {"how": {"refuse": ["park"]}}, "b": {}}}, slots=1) as serve:
        serve.said("a")
        pid = serve.engine("a")
        assert serve.said("b") == "b " * 4
        assert not is_alive(pid)
        assert "a can't park and ends" in serve.text()


# ---- what it starts and ends ---------------------------------------------------------------------


def test_engines_go_on_when_it_is_killed_and_are_found_again() -> None:
    with serving({"models": {"a": {}, "b": {}}}) as serve:
        serve.said("a")
        pid = serve.engine("a")
        serve.signal(signal.SIGKILL)
        assert is_alive(pid)
        serve.start()
        assert serve.said("a") == "a " * 4
        assert f"a.0 runs already: pid {pid}" in serve.text()
        serve.end()
        assert not is_alive(pid)


def test_an_engine_that_starts_when_it_is_killed_does_not_stay(tmp_path: pathlib.Path) -> None:
    """It listens nowhere yet, and would take memory for ever."""
    gate = tmp_path / "gate"
    gate.touch()
    starts = {"how": {"starts_after": str(gate)}, "at_start": True}
    with serving({"models": {"a": starts}}, slots=1) as serve:
        eventually(lambda: "a.0 starts" in serve.text())
        first = serve.engine("a")
        serve.signal(signal.SIGKILL)
        assert is_alive(first)
        serve.start()
        eventually(lambda: serve.text().count("a.0 starts") == 2)
        assert not is_alive(first)
        gate.unlink()
        assert serve.said("a") == "a " * 4


def test_a_standby_goes_on_with_the_engines_within_a_second() -> None:
    with serving({"models": {"a": {}}}) as serve:
        serve.write_port()
        serve.said("a")
        pid = serve.engine("a")
        took = []
        for _ in range(TAKEOVERS):
            second = serve.another("--standby")
            eventually(functools.partial(waits_for_a_lock, second.pid))
            serve.signal(signal.SIGKILL)
            began = time.monotonic()
            serve.take(second)
            assert serve.said("a") == "a " * 4
            took.append(time.monotonic() - began)
            assert serve.engine("a") == pid
        assert min(took) < 1  # the others, if this machine has much else to do


def waits_for_a_lock(pid: int) -> bool:
    text = pathlib.Path("/proc/locks").read_text()
    return bool(re.search(rf"-> FLOCK .* {pid} ", text))


def test_engines_of_models_that_are_gone_end() -> None:
    with serving({"models": {"a": {}, "b": {}}}) as serve:
        serve.said("a")
        pid = serve.engine("a")
        serve.signal(signal.SIGKILL)
        text = serve.file.read_text()
        serve.file.write_text(text.replace('"a" = ', '"c" = '))
        serve.start()
        eventually(lambda: not is_alive(pid))
        assert serve.said("c") == "c " * 4


def test_an_engine_at_a_port_has_a_key_and_ends_with_it() -> None:
    at_port = {"command": command(at="{port}"), "parks": False}
    with serving({"models": {"a": at_port}}) as serve:
        told = serve.ask({"model": "a"}, "/echo")[1]
        assert "authorization: bearer " in told["head"].lower()
        pid = serve.engine("a")
        serve.signal(signal.SIGKILL)
        eventually(lambda: not is_alive(pid))


def test_what_does_not_park_is_ended_for_others() -> None:
    models = {name: {"parks": False} for name in "ab"}
    with serving({"models": models}, slots=1) as serve:
        for name in "aba":
            assert serve.said(name) == f"{name} " * 4


def test_several_engines_of_a_model_share_its_requests() -> None:
    two = {"engines": 2, "memory": AWAKE_GIB * GIB // 2, "how": {"token_s": 0.1}}
    with serving({"models": {"a": two}}) as serve:
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            list(threads.map(serve.said, "aa"))
        assert serve.ask({"model": "a"}, "/counts")[1]["begun"] == 1
        serve.end()
        assert "a.1 was ended" in serve.text()


def test_only_one_has_the_folder() -> None:
    with serving({"models": {"a": {}}}) as serve:
        words = [sys.executable, "-m", "gpuwm.serve", str(serve.file), "--listen", "127.0.0.1:0"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "another gpuwm-serve uses" in done.stderr
        (serve.folder / "run").chmod(0o755)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert "others may not enter it" in done.stderr


def test_metrics_count_what_happened(two_of_five: Serve) -> None:
    two_of_five.said("a")
    status, text = two_of_five.ask(path="/metrics")
    assert status == 200
    for line in (
        'gpuwm_serve_requests_total{model="a",status="200"} ',
        'gpuwm_serve_state{model="a",state="awake"} 1.0',
        'gpuwm_serve_wake_seconds_count{model="a"} ',
        'gpuwm_serve_sleep_seconds_count{model="a"} ',
        'gpuwm_serve_queued{model="a"} 0.0',
        'gpuwm_serve_made_room_total{model="a",waiting="',
    ):
        assert line in text
