"""Which engine of vLLM builds a version, which attaches, and what the others are told."""

from __future__ import annotations

import itertools
import logging
import threading
from typing import Any

import numpy as np
import pytest
from conftest import Daemon

import gpuwm
from gpuwm.engines import election
from gpuwm.engines.ranks import Ranks
from gpuwm.vllm import engines, settings

pytest.importorskip("torch")
_count = itertools.count()
LAYOUT = {"dtype": "bfloat16", "tp": "1"}
IDENTITY = {"identity.weights": "abc"}


@pytest.fixture
def name() -> str:
    return f"elected@v{next(_count)}"


def engine(daemon: Daemon, name: str, mode: str = "auto", **changed: Any) -> engines.Engine:
    identity = changed.pop("identity", IDENTITY)
    layout = changed.pop("layout", LAYOUT)
    given = settings.Settings(ref=name, mode=mode, **changed)
    client = gpuwm.connect(daemon.socket)
    return engines.Engine(
        given, client, Ranks(), daemon.device, layout, {}, dict(identity), name, name
    )


def build(of: engines.Engine) -> None:
    """As an engine that was elected."""
    key = {**of.layout, **of.identity}
    gpuwm.publish(
        {"w": np.arange(8)}, of.name, key=key, bind=False, device=of.device, client=of.client
    )


def test_the_first_builds_and_the_next_attaches(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    build(first)
    found = election.find(engine(daemon, name))
    assert found is not None
    assert str(found.version) == name


def test_an_engine_waits_for_who_builds_and_the_log_says_so(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(election, "WAITING_SECONDS", 0.05)
    first, told = engine(daemon, name), threading.Event()
    assert election.find(first) is None

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    engines.log.addHandler(handler := Told())
    found: list[Any] = []
    waiter = threading.Thread(target=lambda: found.append(election.find(engine(daemon, name))))
    with caplog.at_level(logging.INFO, "vllm.gpuwm"):
        waiter.start()
        assert told.wait(30)
        build(first)
        waiter.join(30)
    engines.log.removeHandler(handler)
    assert str(found[0].version) == name
    assert f"still waiting for {name}" in caplog.text
    assert "claimed by session" in caplog.text


def test_the_builders_end_elects_the_next(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    first.client.close()
    assert election.find(engine(daemon, name)) is None


def test_an_engine_that_gives_up_lets_the_next_build(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    election.give_up(first)
    assert election.find(engine(daemon, name)) is None


def test_a_wait_that_ends_tells_who_builds(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    with pytest.raises(gpuwm.TimedOut, match="claimed by session"):
        election.find(engine(daemon, name, wait=0.01))


def test_a_key_that_differs_is_named(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    build(first)
    changes: list[tuple[dict[str, Any], str]] = [
        ({"layout": LAYOUT | {"dtype": "float16"}}, "dtype"),
        ({"identity": {"identity.weights": "other"}}, "identity.weights"),
    ]
    for changed, field in changes:
        with pytest.raises(gpuwm.Mismatch, match=field):
            election.find(engine(daemon, name, **changed))
    loading = engine(daemon, name, "load", identity={})
    assert election.find(loading) is not None  # any checkpoint of that layout will do


def test_load_says_what_to_do_about_a_version_that_is_not_there(daemon: Daemon, name: str) -> None:
    with pytest.raises(gpuwm.NotFound, match='"mode": "load".*let an engine build it first'):
        election.find(engine(daemon, name, "load"))


def test_auto_follows_an_alias(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    build(first)
    daemon.admin.set_alias("elected", "prod", name.partition("@")[2])
    found = election.find(engine(daemon, "elected@prod"))
    assert found is not None
    assert str(found.version) == name


def test_save_refuses_a_name_that_is_there(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name, "save")
    assert election.find(first) is None
    build(first)
    with pytest.raises(gpuwm.Exists, match=f'"mode": "save".*gpuwmctl retire {name}'):
        election.find(engine(daemon, name, "save"))


def test_of_two_that_save_at_once_the_second_is_told_who_builds(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name, "save")
    assert election.find(first) is None
    with pytest.raises(gpuwm.Busy, match='another process is building.*"mode": "auto"'):
        election.find(engine(daemon, name, "save"))


def test_a_version_of_another_owner_is_refused(daemon: Daemon, name: str) -> None:
    first = engine(daemon, name)
    assert election.find(first) is None
    build(first)
    with pytest.raises(gpuwm.Refused):
        election.find(engine(daemon, name, owner=(4321,)))


def test_a_version_that_was_retired_is_built_again(daemon: Daemon, name: str) -> None:
    kept = engine(daemon, "elected@first")
    if election.find(kept) is None:  # the alias `current` is this one's
        build(kept)
    first = engine(daemon, name)
    assert election.find(first) is None
    build(first)
    daemon.admin.retire(name, wait=30)
    assert election.find(engine(daemon, name)) is None
