"""Whose version is wished for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gpuwm

if TYPE_CHECKING:
    from conftest import Daemon

TENSORS = {"w": np.ones(4, np.float32)}
SOMEBODY = os.getuid() + 1


@pytest.fixture(scope="module")
def loaded(daemon: Daemon) -> str:
    """An operator's."""
    return daemon.load("loaded@v1", TENSORS)


@pytest.fixture(scope="module")
def published(daemon: Daemon) -> str:
    """This user's."""
    gpuwm.publish(TENSORS, "published@v1", bind=False, device=daemon.device)
    return "published@v1"


@pytest.mark.parametrize(
    "owner", [None, "operator", ["operator", SOMEBODY], os.getuid(), range(os.getuid() + 1)]
)
def test_a_version_of_who_is_wished_for_is_attached(loaded: str, owner: Any) -> None:
    gpuwm.attach(loaded, owner=owner).close()


def test_a_version_of_somebody_else_is_refused(loaded: str, published: str) -> None:
    with pytest.raises(gpuwm.Refused, match=rf"accepts only versions of uid {SOMEBODY}"):
        gpuwm.attach(loaded, owner=SOMEBODY)
    with pytest.raises(gpuwm.Refused, match=r"accepts only versions of an operator"):
        gpuwm.attach(published, owner="operator")
    gpuwm.attach(published, owner=[os.getuid()]).close()


def test_a_wait_and_a_subset_ask_for_the_owner(loaded: str) -> None:
    with pytest.raises(gpuwm.Refused):
        gpuwm.attach(loaded, owner=SOMEBODY, wait=60)
    with pytest.raises(gpuwm.Refused):
        gpuwm.attach(loaded, owner=SOMEBODY, glob="w")


def test_a_switch_asks_for_the_same_owner(loaded: str, published: str) -> None:
    with gpuwm.attach(loaded, owner="operator") as w:
        with pytest.raises(gpuwm.Refused):
            w.switch(published)
        assert w.version.model == "loaded"


def test_obtain_asks_for_the_owner_in_each_mode(loaded: str) -> None:
    def make() -> Any:
        raise AssertionError("it is there")

    for mode in ("auto", "load"):
        with pytest.raises(gpuwm.Refused):
            gpuwm.obtain(loaded, make, mode=mode, owner=SOMEBODY)
        gpuwm.obtain(loaded, make, mode=mode, owner="operator").close()


def test_what_was_made_here_is_switched_to_the_owner_only(daemon: Daemon, loaded: str) -> None:
    w = gpuwm.obtain(
        "obtained@v1", lambda: dict(TENSORS), device=daemon.device, owner=[os.getuid() + 7]
    )
    with w:
        with pytest.raises(gpuwm.Refused, match=rf"accepts only versions of uid {os.getuid() + 7}"):
            w.switch(loaded)
        assert w.version.model == "obtained"


@pytest.mark.parametrize("owner", ["root", -1, True, [], ["operator", "x"], 2**32 - 1, 1.5])
def test_owners_are_numbers_of_users_and_operator(loaded: str, owner: Any) -> None:
    with pytest.raises((gpuwm.Invalid, TypeError), match="owner"):
        gpuwm.attach(loaded, owner=owner)


def test_list_tells_who_made_what(daemon: Daemon, loaded: str, published: str) -> None:
    told = daemon.admin.list()
    made = {row["model"]: (row["owner_uid"], row["by_operator"]) for row in told["versions"]}
    owners = {row["model"]: (row["owner_uid"], row["by_operator"]) for row in told["models"]}
    assert made[loaded.split("@")[0]] == (os.getuid(), True)
    assert made[published.split("@")[0]] == (os.getuid(), False)
    assert owners == made
