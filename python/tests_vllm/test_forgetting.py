"""A start that fails after its election leaves no claim behind, though its process lives."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Daemon, eventually

import gpuwm
from gpuwm.engines import election, names
from gpuwm.engines.ranks import Ranks
from gpuwm.vllm import engines, refusals, settings

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM's imports warn
_count = itertools.count()


@pytest.fixture
def name() -> str:
    return f"forgotten@v{next(_count)}"


def engine(daemon: Daemon, name: str) -> engines.Engine:
    client = gpuwm.connect(daemon.socket)
    given = settings.Settings(ref=name, wait=0.0)  # a claim that leaks is an error, no hang
    return engines.Engine(given, client, Ranks(), daemon.device, {}, {}, {}, name, name)


def loader(daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loader of an engine whose configuration has nothing that is refused."""
    from gpuwm.vllm import model_loader

    monkeypatch.setattr(refusals, "check", lambda *_: None)
    monkeypatch.setattr(names, "connect", lambda *_: engine(daemon, name))
    monkeypatch.setattr(engines, "draft_bytes", lambda *_: 0)
    made = object.__new__(model_loader.Loader)
    made.settings = settings.Settings(ref=name)
    made.load_config = SimpleNamespace(model_loader_extra_config={})
    return made


MODEL = SimpleNamespace(enable_sleep_mode=False)
CONFIG = SimpleNamespace(model_config=MODEL, parallel_config=SimpleNamespace(world_size=1))


def test_what_was_decided_is_forgotten(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import model_loader

    one = loader(daemon, name, monkeypatch)
    assert one.get_external_weight_memory(CONFIG) == 0
    model_loader.forget()
    assert model_loader._decided == {}
    assert election.find(engine(daemon, name)) is None


def test_an_error_after_the_election_gives_the_claim_up(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = loader(daemon, name, monkeypatch)

    def no_room(*_: Any) -> int:
        raise gpuwm.NoRoom("the GPU is full")

    monkeypatch.setattr(engines, "draft_bytes", no_room)
    with pytest.raises(gpuwm.NoRoom):
        one.get_external_weight_memory(CONFIG)
    assert election.find(engine(daemon, name)) is None


def test_a_start_with_other_settings_does_not_wait_for_the_one_before(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuwm.vllm import model_loader

    one = loader(daemon, name, monkeypatch)
    one.get_external_weight_memory(CONFIG)
    other = loader(daemon, name, monkeypatch)
    other.settings = settings.Settings(ref=name, private=("*.bias",))
    assert other.get_external_weight_memory(CONFIG) == 0
    model_loader.forget()


def test_the_lease_of_a_version_is_dropped(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from gpuwm.vllm import model_loader

    gpuwm.publish({"w": torch.zeros(8)}, name, bind=False, device=daemon.device)
    one = loader(daemon, name, monkeypatch)
    assert one.get_external_weight_memory(CONFIG) > 0
    model_loader.forget()
    # A thread of the library unmaps what was dropped, and gives the lease back.
    eventually(lambda: daemon.leases(name) == 0)
