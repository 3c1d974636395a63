"""gpuwm-serve and gpuwmd: engines on real leases, aliases that move, who decides."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import sys
from typing import Any

import numpy as np
import pytest
from conftest import Daemon, eventually, running
from serving_models import ENGINE, is_alive, serving

import gpuwm
from gpuwm.serve import gpuwmd


def load(daemon: Daemon, *names: str) -> None:
    for name in names:
        daemon.load(name, {"weight": np.full(1 << 20, len(name), np.uint8)})


def model(daemon: Daemon, version: str, **how: Any) -> dict[str, Any]:
    """One whose engine has a lease on this version. There is room for one such engine."""
    device = "host" if daemon.device == "host" else "0"
    takes = gpuwmd.budgets(gpuwm.connect(), [device])[device] // 3 * 2
    return {
        "how": {"gpuwmd": version, "room": takes, **how},
        "devices": [device],
        "memory": takes,
    }


def follows(daemon: Daemon, name: str, **how: Any) -> dict[str, Any]:
    """One that follows the alias `prod` of a model, which is on v1 of v1 and v2."""
    load(daemon, f"{name}@v1", f"{name}@v2")
    daemon.admin.swap(name, "v1", alias="prod")
    ref = f"{name}@prod"
    return {**model(daemon, ref, token_s=0.01, **how), "version": ref}


# ---- aliases -------------------------------------------------------------------------------------


def test_a_swap_of_an_alias_switches_the_engine_under_traffic(daemon: Daemon) -> None:
    with serving({"models": {"a": follows(daemon, "x")}, "devices": {}}) as serve:
        assert serve.said("a") == "x@v1 " * 4
        pid = serve.engine("a")
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            long = thread.submit(serve.said, "a", max_tokens=400)
            eventually(lambda: serve.ask(path="/v1/models/a")[1]["in_flight"])
            serve.said("a")  # the long one has tokens when this one has its last
            daemon.admin.swap("x", "v2", alias="prod")
            eventually(lambda: serve.said("a", max_tokens=1) == "x@v2 ")
            told = long.result().split()
        assert len(told) == 400
        assert sorted(set(told)) == ["x@v1", "x@v2"]
        assert serve.engine("a") == pid
        assert "a.0 is on x@v2 now" in serve.text()


def test_an_engine_that_slept_while_the_alias_moved_answers_with_the_new_version(
    daemon: Daemon,
) -> None:
    models = {"a": follows(daemon, "y"), "b": model(daemon, "y@v1")}
    with serving({"models": models, "devices": {}}) as serve:
        serve.said("a")
        serve.said("b")
        assert serve.state("a") == "asleep"
        daemon.admin.swap("y", "v2", alias="prod")
        assert serve.said("a") == "y@v2 " * 4


def test_engines_that_can_t_switch_are_replaced(daemon: Daemon) -> None:
    models = {"a": follows(daemon, "z", switch=["", "Mismatch"])}
    with serving({"models": models, "devices": {}}) as serve:
        assert serve.said("a") == "z@v1 " * 4
        pid = serve.engine("a")
        daemon.admin.swap("z", "v2", alias="prod")
        eventually(lambda: serve.said("a") == "z@v2 " * 4)
        assert serve.engine("a") != pid
        assert "a needs new engines for z@prod" in serve.text()


def test_engines_that_only_start_and_end_are_replaced(daemon: Daemon) -> None:
    models = {"a": {**follows(daemon, "w"), "parks": False}}
    with serving({"models": models, "devices": {}}) as serve:
        assert serve.said("a") == "w@v1 " * 4
        daemon.admin.swap("w", "v2", alias="prod")
        eventually(lambda: serve.said("a") == "w@v2 " * 4)


def test_a_switch_that_may_work_later_is_tried_again(daemon: Daemon) -> None:
    models = {"a": follows(daemon, "u", switch=["Busy"])}
    with serving({"models": models, "devices": {}}) as serve:
        assert serve.said("a") == "u@v1 " * 4
        assert "a switches later" in serve.text()
        daemon.admin.swap("u", "v2", alias="prod")
        eventually(lambda: serve.said("a") == "u@v2 " * 4)


def test_a_version_that_no_engine_could_serve_changes_nothing(daemon: Daemon) -> None:
    models = {"a": follows(daemon, "s", switch=["", "Damaged"])}
    with serving({"models": models, "devices": {}}) as serve:
        serve.said("a")
        pid = serve.engine("a")
        daemon.admin.swap("s", "v2", alias="prod")
        eventually(lambda: "a keeps its version" in serve.text())
        assert serve.said("a") == "s@v1 " * 4
        assert serve.engine("a") == pid


def test_an_engine_that_a_switch_has_left_paused_starts_again(daemon: Daemon) -> None:
    models = {"a": follows(daemon, "r", switch=["", "Lost"])}
    with serving({"models": models, "devices": {}}) as serve:
        serve.said("a")
        pid = serve.engine("a")
        daemon.admin.swap("r", "v2", alias="prod")
        eventually(lambda: serve.engine("a") != pid)
        assert serve.said("a") == "r@v2 " * 4


def test_a_version_that_is_not_there_is_named(daemon: Daemon) -> None:
    with serving({"models": {"a": follows(daemon, "t")}, "devices": {}}) as serve:
        serve.write({"models": {"a": {**model(daemon, "t@v1"), "version": "t@none"}}})
        done = serve.command("reload")
        assert "models.a: gpuwmd has no version t@none that is ready" in done.stderr


# ---- room and claims -----------------------------------------------------------------------------


def test_engines_take_turns_on_memory_of_gpuwmd(daemon: Daemon) -> None:
    """Real leases: gpuwmd has room for one of two."""
    models = {name: model(daemon, f"{name}@v1") for name in "ab"}
    takes = models["a"]["memory"]
    for name in "ab":
        load(daemon, f"{name}@v1")
    with serving({"models": models, "devices": {}}) as serve:
        assert not gpuwmd.decides(gpuwm.connect(), 0.1)
        for name in "abab":
            assert serve.said(name) == f"{name}@v1 " * 4
        serve.said("a")
        rooms = {
            lease["version"]: lease.get("room", 0)
            for client in daemon.admin.clients()
            for lease in client["leases"]
        }
        assert sorted(rooms.values()) == [0, takes]


def test_what_gpuwmd_has_room_for_is_known(daemon: Daemon) -> None:
    client, started = gpuwmd.connect()
    assert not started
    device = "host" if daemon.device == "host" else "0"
    budgets = gpuwmd.budgets(client, [device, "7"])
    (budget,) = (each.budget for each in client.devices if each.id == daemon.device)
    assert budgets == {device: budget - budget // 8}
    daemon.load("full@v1", {"weight": np.ones(8, np.uint8)})
    # Of an operator's version nothing counts as a user's, and nobody has a lease any more.
    eventually(lambda: not any(each["leases"] for each in daemon.admin.clients()))
    with gpuwm.attach("full@v1", room=budgets[device], wait=30):
        pass
    with pytest.raises(gpuwm.NoRoom):
        gpuwm.attach("full@v1", room=budgets[device] + 1)


def test_one_decides_for_each_gpuwmd(daemon: Daemon) -> None:
    first, second = gpuwm.connect(), gpuwm.connect()
    assert gpuwmd.decides(first, 0)
    assert not gpuwmd.decides(second, 0.1)
    first.close()
    assert gpuwmd.decides(second, 30)


def test_it_decides_on_when_gpuwmd_was_killed() -> None:
    with running(keeper=True) as daemon:
        load(daemon, "x@v1")
        with serving({"models": {"a": model(daemon, "x@v1")}, "devices": {}}) as serve:
            serve.said("a")
            pid = serve.engine("a")
            daemon.restart()
            eventually(lambda: not gpuwmd.decides(gpuwm.connect(), 0.1))
            assert serve.said("a") == "x@v1 " * 4
            assert serve.engine("a") == pid


def test_it_ends_when_a_gpuwmd_that_has_lost_all_lets_another_one_decide() -> None:
    with running() as daemon:
        load(daemon, "x@v1")
        with serving({"models": {"a": model(daemon, "x@v1")}, "devices": {}}) as serve:
            serve.said("a")
            pid = serve.engine("a")
            os.kill(serve.pid, signal.SIGSTOP)
            daemon.kill()
            daemon.start()
            other = gpuwm.connect()
            assert gpuwmd.decides(other, 0)
            os.kill(serve.pid, signal.SIGCONT)
            assert serve.wait() == 1
            assert not is_alive(pid)
            assert "another gpuwm-serve decides for this gpuwmd since" in serve.text()


def test_routes_for_operators_are_nobody_else_s(
    daemon: Daemon, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = tmp_path / "vllm"
    vllm.write_text(f"#!/bin/sh\nexec {sys.executable} {ENGINE} $6 $4 '{{}}'\n")
    vllm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    device = "host" if daemon.device == "host" else "0"
    made = {"engine": "vllm", "source": "x/a", "command": [], "devices": [device]}
    with serving({"models": {"a": made}}) as serve:
        assert serve.said("a") == "a " * 4
        assert serve.ask({"model": "a"}, "/tokenize")[0] == 200
        for path in ("/collective_rpc", "/%73leep", "/v1/load_lora_adapter", "/v1/../sleep"):
            status, found = serve.ask({"model": "a"}, path)
            assert (status, found["error"]["code"]) == (404, None), path
