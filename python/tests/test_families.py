"""Families of models, quantisations and consumers: published in one process, each computes the same
in another one, in every bit."""

from __future__ import annotations

import contextlib

import family_models
import pytest
from conftest import BACKEND, Daemon
from other_processes import Peer

import gpuwm
import gpuwm.image

pytestmark = [
    pytest.mark.skipif(BACKEND != "host", reason="the models' answers are the CPU's"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*weight_norm.*:DeprecationWarning"),
]

THERE = """
import warnings; warnings.simplefilter("ignore")
warnings.filterwarnings("error", ".*does not carry")
import family_models, gpuwm.image

def bound(name):
    model = family_models.make(name, 2)
    own = family_models.answer(name, model)
    gpuwm.attach(f"{name}@v1").bind(model)
    return own, family_models.answer(name, model)

def built(name):
    model = gpuwm.build(f"{name}@v1", lambda: family_models.make(name, 2))
    return family_models.answer(name, model)

def consumed(name):
    model = gpuwm.build("plain@v1", lambda: family_models.make("plain", 2))
    return family_models.answer("plain", family_models.CONSUMERS[name](model))

def installed(name):
    model = family_models.make(name, 2)
    gpuwm.image.install(model, f"{name}-image@v1")
    return family_models.answer(name, model)
"""


@pytest.fixture(scope="module")
def there(peer: Peer) -> Peer:
    """The other process, which has no model from this one."""
    peer.run(THERE)
    return peer


@pytest.mark.parametrize("name", family_models.NAMES)
def test_it_computes_the_same_in_another_process(name: str, daemon: Daemon, there: Peer) -> None:
    model = family_models.make(name, 1)
    want = family_models.answer(name, model)
    assert want
    gpuwm.publish(model, f"{name}@v1")
    assert family_models.answer(name, model) == want  # the publisher goes on
    own, bound = there.run("bound(name)", name=name)
    assert own != want  # so it is the version that makes them equal
    assert bound == want
    assert there.run("built(name)", name=name) == want


@pytest.mark.parametrize("name", family_models.NAMES)
def test_its_image_computes_the_same_in_another_process(
    name: str, daemon: Daemon, there: Peer
) -> None:
    model = family_models.make(name, 1)
    want = family_models.answer(name, model)
    gpuwm.image.publish(model, f"{name}-image@v1")
    assert family_models.answer(name, model) == want
    assert there.run("installed(name)", name=name) == want


@pytest.mark.parametrize("name", family_models.CONSUMERS)
def test_what_is_made_of_it_there_computes_the_same(name: str, daemon: Daemon, there: Peer) -> None:
    model = family_models.make("plain", 1)
    want = family_models.answer("plain", model)
    with contextlib.suppress(gpuwm.Exists):
        gpuwm.publish(model, "plain@v1", bind=False)
    assert there.run("consumed(name)", name=name) == want
