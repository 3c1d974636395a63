"""Connecting and operating."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import (
    BACKEND,
    Daemon,
    Tensors,
    eventually,
    in_calls,
    interrupted,
    on_fakecuda,
    on_host,
    write_safetensors,
)

import gpuwm

ONES = np.ones(16, np.float32)


@pytest.fixture
def versions(checkpoint: Callable[[Tensors], str]) -> tuple[str, str]:
    return checkpoint({"a": ONES}), checkpoint({"a": ONES * 2})


def test_nobody_listens(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    socket = os.path.join(tmp_path, "none.sock")
    with pytest.raises(gpuwm.Unreachable, match=r"none\.sock.*: .*"):
        gpuwm.connect(socket)
    monkeypatch.setenv("GPUWM_SOCKET", socket)
    with pytest.raises(gpuwm.Unreachable, match=r"none\.sock"):
        gpuwm.attach("any")


@pytest.mark.usefixtures("daemon")
def test_what_is_not_there_is_named() -> None:
    with pytest.raises(gpuwm.NotFound, match="nothing-such") as caught:
        gpuwm.attach("nothing-such@v1")
    assert (caught.value.name, caught.value.code) == ("ENOENT", 2)


def test_bad_arguments_are_named(versions: tuple[str, str], daemon: Daemon) -> None:
    for attach in (
        lambda: gpuwm.attach("zero\0byte"),
        lambda: gpuwm.attach(versions[0], writes="allowed"),  # type: ignore[call-overload]
        lambda: gpuwm.attach(versions[0], glob=[]),
        lambda: gpuwm.attach(versions[0], layers=[-1]),
    ):
        with pytest.raises(gpuwm.Invalid):
            attach()
    closed = gpuwm.connect(daemon.socket)
    closed.close()
    with pytest.raises(gpuwm.Closed):
        gpuwm.attach(versions[0], client=closed)


def test_a_version_elsewhere_says_where(versions: tuple[str, str], daemon: Daemon) -> None:
    other = "GPU-00000000-0000-0000-0000-000000000000"
    with pytest.raises(gpuwm.NoDevice, match=daemon.device):
        gpuwm.attach(versions[0], device=other)


@on_host
def test_host_has_two_names_and_a_gpu_needs_a_driver(versions: tuple[str, str]) -> None:
    import torch

    on_cpu: list[Any] = ["host", "cpu", torch.device("cpu")]
    for device in on_cpu:
        assert gpuwm.attach(versions[0], device=device).device == "host"
    if torch.cuda.is_available():
        return
    on_gpus: list[Any] = ["cuda", "cuda:0", 0, torch.device("cuda", 1)]
    for device in on_gpus:
        with pytest.raises(gpuwm.Unsupported, match="there is no CUDA driver here"):
            gpuwm.attach(versions[0], device=device)


@on_fakecuda
def test_gpus_are_named_as_this_process_counts(versions: tuple[str, str], daemon: Daemon) -> None:
    for device in ("cuda", "cuda:0", 0, daemon.device):
        assert gpuwm.attach(versions[0], device=device).device == daemon.device
    with pytest.raises(gpuwm.NoDevice, match=daemon.device):
        gpuwm.attach(versions[0], device="cuda:1")
    with pytest.raises(gpuwm.NoDevice, match="there is no cuda:7: cuDeviceGet"):
        gpuwm.attach(versions[0], device="cuda:7")


def test_an_operator_swaps_and_goes_back(versions: tuple[str, str], daemon: Daemon) -> None:
    one, two = versions
    model = one.partition("@")[0]
    first = gpuwm.attach(model).version
    old = daemon.admin.swap(model, "v2")
    assert old == first.id
    assert str(gpuwm.attach(model).version) == two
    with pytest.raises(gpuwm.Busy):
        daemon.admin.swap(model, "v1", expect=first.id)
    daemon.admin.rollback(model)
    assert str(gpuwm.attach(model).version) == one
    daemon.admin.swap(model, "v2", alias="prod")
    assert gpuwm.attach(f"{model}@prod").version.generation == 1
    assert daemon.admin.swap(model, None, alias="prod") == gpuwm.attach(two).version.id


def test_an_alias_of_your_own_goes_back(versions: tuple[str, str], daemon: Daemon) -> None:
    one, two = (gpuwm.attach(version).version.id for version in versions)
    model, admin = versions[0].partition("@")[0], daemon.admin
    with pytest.raises(gpuwm.NotFound, match='has no alias "canary"'):
        admin.rollback(model, "canary")
    admin.set_alias(model, "canary", "v1")
    with pytest.raises(gpuwm.NotFound, match="has named no other version"):
        admin.rollback(model, "canary")
    admin.set_alias(model, "canary", "v2")
    assert admin.rollback(model, "canary") == two
    assert gpuwm.attach(f"{model}@canary").version.id == one
    assert admin.rollback(model, alias="canary") == one
    admin.remove_alias(model, "canary")


def test_a_rollback_moves_only_what_it_saw(
    versions: tuple[str, str], daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else moves the alias between the look and the swap."""
    model, admin = versions[0].partition("@")[0], daemon.admin
    admin.swap(model, "v1")
    admin.swap(model, "v2")
    seen = admin.list(model)
    admin.swap(model, "v1")
    monkeypatch.setattr(admin, "list", lambda _: seen)
    with pytest.raises(gpuwm.Busy):
        admin.rollback(model)
    assert gpuwm.attach(model).version.tag == "v1"


def test_an_operator_sets_and_removes_an_alias(versions: tuple[str, str], daemon: Daemon) -> None:
    one, two = (gpuwm.attach(version).version.id for version in versions)
    model, admin = versions[0].partition("@")[0], daemon.admin
    assert admin.set_alias(model, "canary", "v1") == ""
    assert admin.set_alias(model, "canary", "v2") == one
    assert admin.set_alias(model, "canary", two, expect=two) == two
    with pytest.raises(gpuwm.Busy):
        admin.set_alias(model, "canary", "v1", expect=one)
    assert gpuwm.attach(f"{model}@canary").version.id == two
    assert {row["alias"]: row["version"] for row in admin.list(model)["aliases"]} == {
        "current": one,
        "canary": two,
    }
    with pytest.raises(gpuwm.Busy):
        admin.remove_alias(model, "canary", expect=one)
    assert admin.remove_alias(model, "canary") == two
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(f"{model}@canary")
    assert gpuwm.attach(versions[1]).version.id == two  # the version stays


def test_a_publisher_describes_by_files_that_it_passes(
    client: gpuwm.Client, daemon: Daemon
) -> None:
    folder = daemon.models / "described"
    folder.mkdir()
    path = folder / "model.safetensors"
    write_safetensors(path, {"a": ONES})
    ref = "described@v1"
    with path.open("rb") as file:
        files = {path.name: file.fileno()}
        client.load("hf:acme/tiny@0123abc", ref, devices=daemon.device, files=files).wait(60)
    assert [job.wait(60) for job in client.describe(ref, folder)] == [True]
    for job in daemon.admin.demote(ref, "files"):
        job.wait(60)
    for job in daemon.admin.promote(ref):
        job.wait(60)
    assert [job.wait(60) for job in daemon.admin.verify(ref, source=True)] == [True]
    # The loader may read what a link leads to, and this user perhaps not.
    other = path.rename(daemon.models / "other.safetensors")
    path.symlink_to("../other.safetensors")
    with pytest.raises(gpuwm.Error, match="can't be opened"):
        client.describe(ref, folder)
    with pytest.raises(gpuwm.Damaged, match="not have the files by which described") as caught:
        daemon.admin.verify(ref, source=True)[0].wait(60)
    assert "tensor" not in str(caught.value)
    other.unlink()
    daemon.admin.remove_alias("described", "current")
    daemon.admin.retire(ref, wait=60)


def test_aliases_that_can_not_be_set(versions: tuple[str, str], daemon: Daemon) -> None:
    model, admin = versions[0].partition("@")[0], daemon.admin
    with pytest.raises(gpuwm.NotFound):
        admin.set_alias(model, "canary", "v9")
    with pytest.raises(gpuwm.NotFound):
        admin.remove_alias(model, "canary")
    with pytest.raises(gpuwm.Exists):
        admin.set_alias(model, "v2", "v1")
    nothing: Any = None
    with pytest.raises(TypeError, match="^to=None: give a str"):
        admin.set_alias(model, "canary", nothing)
    with pytest.raises(gpuwm.Refused):
        gpuwm.connect(daemon.socket).set_alias(model, "canary", "v1")


def test_an_operator_pins_verifies_and_retires(versions: tuple[str, str], daemon: Daemon) -> None:
    one, two = versions
    admin = daemon.admin
    admin.pin(two, "keep")
    with pytest.raises(gpuwm.Exists):
        admin.pin(two, "keep")
    assert [job.wait() for job in admin.verify(two)] == [True]
    assert [job.wait() for job in admin.verify(two, source=True)] == [True]
    with pytest.raises(gpuwm.TimedOut):
        admin.retire(two, wait=0.05)
    admin.unpin(two, "keep")
    eventually(lambda: two.partition("@")[2] not in str(admin.list(two.partition("@")[0])))
    with pytest.raises(gpuwm.Busy):
        admin.retire(one)
    with pytest.raises(gpuwm.NotFound):
        admin.unpin(one, "none")


def test_a_worker_looks_and_does_not_operate(
    client: gpuwm.Client, versions: tuple[str, str]
) -> None:
    assert 0 < client.ping() < 10
    assert client.devices[0].id == "host"
    assert len(client.instance) == 32
    assert client.status()["instance"] == client.instance
    model = versions[0].partition("@")[0]
    found = client.list(model)
    assert sorted(row["tag"] for row in found["versions"]) == ["v1", "v2"]
    refused = (client.clients, client.metrics, client.jobs, client.drain, client.reload)
    for call in (*refused, lambda: client.swap(model, "v1")):
        with pytest.raises(gpuwm.Refused):
            call()


def test_what_is_lost_with_a_gpu_is_drained(daemon: Daemon) -> None:
    assert all(device.lost == "" for device in daemon.admin.devices)
    with pytest.raises(gpuwm.Invalid, match=r"host is not lost"):
        daemon.admin.drain("host")
    with pytest.raises(gpuwm.NoDevice, match=r"no device \"GPU-no"):
        daemon.admin.drain(device="GPU-no")
    assert not daemon.admin.status()["draining"]


def test_jobs_tell_their_end(daemon: Daemon, tmp_path: os.PathLike[str]) -> None:
    job = daemon.admin.load(daemon.models / "nothing", "missing@v1", devices=daemon.device)
    with pytest.raises(gpuwm.NotFound):
        job.wait()
    with pytest.raises(gpuwm.NotFound):
        job.cancel()
    assert daemon.admin.jobs(job)[0]["state"] == "failed"
    assert daemon.admin.clients()
    with pytest.raises(gpuwm.Refused):
        daemon.admin.load("/outside", "outside@v1")
    with pytest.raises(gpuwm.NotFound):
        daemon.admin.wait_job(999999)


def test_a_load_takes_open_files(
    daemon: Daemon, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    ref = f"{request.node.name.replace('_', '-')}@v1"
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"w": np.arange(4, dtype=np.float32)})
    with path.open("rb") as file, gpuwm.connect(daemon.socket) as client:
        job = client.load(
            "hf:acme/tiny@0123abc", ref, devices=daemon.device, files={path.name: file.fileno()}
        )
    with gpuwm.connect(daemon.socket) as client:
        assert client.wait_job(job, 60)
    with gpuwm.attach(ref, device=daemon.device) as weights:
        assert weights["w"].shape == (4,)
    with pytest.raises(gpuwm.Invalid, match=r"files=-1"):
        daemon.admin.load("hf:acme/tiny", ref, files={"model.safetensors": -1})
    with pytest.raises(gpuwm.Refused, match=r"open for reading"), path.open("ab") as file:
        daemon.admin.load(
            "hf:acme/tiny", f"{ref}w", devices=daemon.device, files={path.name: file.fileno()}
        ).wait(60)


def test_a_load_takes_only_some_tensors(daemon: Daemon, request: pytest.FixtureRequest) -> None:
    ref = f"{request.node.name.replace('_', '-')}@v1"
    path = daemon.models / f"{request.node.name}.safetensors"
    write_safetensors(path, {name: np.arange(4, dtype=np.float32) for name in ("a.1", "a.2", "b")})
    job = daemon.admin.load(path, ref, devices=daemon.device, only=["a.*"])
    assert job.wait(60)
    assert "2 of 3 tensors, by --only" in daemon.admin.jobs(job)[0]["notes"]
    with gpuwm.attach(ref, device=daemon.device) as weights:
        assert sorted(weights) == ["a.1", "a.2"]
    with pytest.raises(gpuwm.NotFound, match=r'none of its 3 tensors matches "c"'):
        daemon.admin.load(path, f"{ref}w", devices=daemon.device, only="c").wait(60)
    with pytest.raises(gpuwm.Invalid, match=r"only_count is 33"):
        daemon.admin.load(path, f"{ref}w", devices=daemon.device, only=["a.*"] * 33)
    with pytest.raises(ValueError, match=r"only: there is no glob"):
        daemon.admin.load(path, f"{ref}w", devices=daemon.device, only=[])


def test_a_hub_repositorys_folder_names_its_snapshot(daemon: Daemon) -> None:
    repository = daemon.models / "models--acme--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0123abc")
    (repository / "snapshots" / "0123abc").mkdir(parents=True)
    job = daemon.admin.load(repository, "repository@v1", devices=daemon.device)
    with pytest.raises(gpuwm.NotFound, match=r"snapshots/0123abc is what refs/main names"):
        job.wait(60)


def test_a_swap_tells_why_the_old_version_is_not_retired(
    versions: tuple[str, str], daemon: Daemon
) -> None:
    model = versions[0].partition("@")[0]
    ids = {row["tag"]: row["version"] for row in daemon.admin.list(model)["versions"]}
    daemon.admin.swap(model, "v1")
    daemon.admin.swap(model, "v1", alias="prod")
    old = daemon.admin.swap(model, "v2", retire_old=True)
    assert old == ids["v1"]
    assert isinstance(old.kept, gpuwm.Busy)
    assert "@v1 is named by 1 alias" in str(old.kept)
    gone_back = daemon.admin.rollback(model)
    assert gone_back == ids["v2"]
    assert gone_back.kept is None
    daemon.admin.swap(model, None, alias="prod")


def test_a_load_can_share_the_memory_of_a_version(
    versions: tuple[str, str], daemon: Daemon, request: pytest.FixtureRequest
) -> None:
    source = next(job["source"] for job in daemon.admin.jobs() if job["kind"] == "load")
    model = f"sharing-{request.node.name.replace('_', '-')}"
    assert daemon.admin.load(source, f"{model}@v1", devices=daemon.device).wait(60)
    held = daemon.admin.status()["bytes"]
    assert daemon.admin.load(
        source, f"{model}@v2", devices=daemon.device, share_with=model, segment_bytes=2**34
    ).wait(60)
    assert daemon.admin.status()["bytes"] == held
    second = daemon.admin.list(model)["versions"][1]
    assert second["shared_bytes"] == second["bytes"]
    assert [row["tag"] for row in second["shared_with"]] == ["v1"]
    with pytest.raises(gpuwm.NotFound):
        daemon.admin.load(source, f"{model}@v3", devices=daemon.device, share_with="nothing@v1")
    with pytest.raises(gpuwm.Invalid, match="3 bytes"):
        daemon.admin.load(source, f"{model}@v3", devices=daemon.device, segment_bytes=3)


def test_a_load_can_replace_a_version_as_one_step(
    versions: tuple[str, str], daemon: Daemon, request: pytest.FixtureRequest
) -> None:
    source = next(job["source"] for job in daemon.admin.jobs() if job["kind"] == "load")
    model, none = f"one-step-{request.node.name.replace('_', '-')}", "0" * 32

    def load(tag: str, expect: str) -> gpuwm.Job:
        return daemon.admin.load(
            source,
            f"{model}@{tag}",
            devices=daemon.device,
            alias="current",
            expect=expect,
            retire_old=True,
        )

    assert load("v1", none).wait(60)
    first = daemon.admin.list(model)["aliases"][0]["version"]
    with pytest.raises(gpuwm.Busy, match="@current names v1"):
        load("v2", none)
    assert load("v2", first).wait(60)
    states = {row["tag"]: row["state"] for row in daemon.admin.list(model)["versions"]}
    assert states["v2"] == "ready"
    assert states.get("v1") in (None, "retiring")


def test_what_failed_is_removed(versions: tuple[str, str], daemon: Daemon) -> None:
    model = versions[0].partition("@")[0]
    with pytest.raises(gpuwm.Error, match="is ready: only a failed version can be removed"):
        daemon.admin.remove(versions[0])
    with pytest.raises(gpuwm.NotFound):
        daemon.admin.remove(f"{model}@v9")

    def give_up(_: str) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        gpuwm.publish(
            {"w": ONES},
            f"{model}@v3",
            device=daemon.device,
            bind=False,
            rank=0,
            world=2,
            announce=give_up,
        )
    rows = {row["tag"]: row["state"] for row in daemon.admin.list(model)["versions"]}
    assert rows["v3"] == "failed"
    daemon.admin.remove(f"{model}@v3")
    assert sorted(row["tag"] for row in daemon.admin.list(model)["versions"]) == ["v1", "v2"]


def test_a_load_has_the_key_that_it_was_given(versions: tuple[str, str], daemon: Daemon) -> None:
    source = next(job["source"] for job in daemon.admin.jobs() if job["kind"] == "load")
    keyed = f"{versions[0]}-keyed"
    assert daemon.admin.load(source, keyed, devices=daemon.device, key={"world": 2}).wait(60)
    with gpuwm.attach(keyed, key={"world": "2"}) as w:
        assert w.metadata["key.world"] == "2"
    with pytest.raises(gpuwm.Mismatch, match="world"):
        gpuwm.attach(keyed, key={"world": 4})


def test_a_wait_is_for_what_comes(
    checkpoint: Callable[[Tensors], str], daemon: Daemon, request: pytest.FixtureRequest
) -> None:
    name = f"{request.node.name.replace('_', '-')}@v1"
    with pytest.raises(gpuwm.TimedOut):
        gpuwm.attach(name, wait=0.01)
    found: list[gpuwm.Mapping] = []
    thread = threading.Thread(target=lambda: found.append(gpuwm.attach(name, wait=60)))
    thread.start()
    checkpoint({"a": ONES})
    thread.join()
    assert str(found[0].version) == name


@pytest.mark.usefixtures("daemon")
def test_a_signal_ends_a_wait() -> None:
    interrupted(lambda: gpuwm.attach("never-there@v1", wait=60), lambda: None)


@pytest.mark.parametrize("what", ["connect", "attach", "list", "events"])
def test_a_signal_ends_a_call_to_a_gpuwmd_that_hangs(
    daemon: Daemon, client: gpuwm.Client, versions: tuple[str, str], what: str
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "connect": lambda: gpuwm.connect(daemon.socket),
        "attach": lambda: gpuwm.attach(versions[0], client=client),
        "list": client.list,
        "events": lambda: client.events().next(),
    }
    before = set(in_calls())
    daemon.signal(signal.SIGSTOP)
    try:
        interrupted(calls[what], lambda: daemon.signal(signal.SIGCONT))
    finally:
        daemon.signal(signal.SIGCONT)
    assert client.list()["versions"]
    # What was left goes on, and ends.
    eventually(lambda: not set(in_calls()) - before)


def test_the_shared_client_is_one(daemon: Daemon, versions: tuple[str, str]) -> None:
    def sessions() -> set[int]:
        return {c["session"] for c in daemon.admin.clients() if c["socket"] == "worker"}

    held = [gpuwm.attach(version) for version in versions]
    before = sessions()
    held.extend(gpuwm.attach(version) for version in versions)
    # Those of clients that were let go may end meanwhile.
    assert not sessions() - before


def test_a_copy_is_private(daemon: Daemon, versions: tuple[str, str]) -> None:
    if BACKEND == "fakecuda":
        with pytest.raises(gpuwm.Unsupported):
            gpuwm.attach(versions[0], copy=True)
    else:
        copies = gpuwm.attach(versions[0], copy=True)
        copies["a"][0] = 7
        assert copies.torch("a")[0] == 7
        assert str(copies.version) == versions[0]
        assert list(copies.state_dict()) == list(copies) == ["a"]
        assert gpuwm.attach(versions[0]).torch("a")[0] == 1
        with pytest.raises(gpuwm.NoTensor):
            copies["b"]
    eventually(lambda: daemon.leases(versions[0]) == 0)


def test_a_client_may_be_closed_while_it_waits(daemon: Daemon) -> None:
    client = gpuwm.connect(daemon.socket)
    ended: list[BaseException] = []

    def wait() -> None:
        with pytest.raises(gpuwm.TimedOut) as caught:
            gpuwm.attach("never-there@v1", wait=3, client=client)
        ended.append(caught.value)

    fewest: int = daemon.admin.status()["waiting"]

    def waits() -> bool:
        nonlocal fewest
        waiting: int = daemon.admin.status()["waiting"]
        fewest = min(fewest, waiting)  # a wait that was interrupted goes on by itself, and ends
        return waiting > fewest

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(waits)
    client.close()
    thread.join()
    assert ended


def test_operators_look_at_what_gives_no_leases(daemon: Daemon, checkpoint: Any) -> None:
    name = checkpoint({"a": ONES})
    held = gpuwm.attach(name)
    daemon.admin.swap(held.version.model, None)  # the first of a model is its current
    daemon.admin.retire(name)
    with pytest.raises(gpuwm.NotFound, match="retir"):
        gpuwm.attach(held.version.id)
    with pytest.raises(gpuwm.Refused):
        gpuwm.attach(held.version.id, look=True)
    looked = gpuwm.attach(held.version.id, look=True, client=daemon.admin)
    assert looked["a"].tobytes() == ONES.tobytes()
