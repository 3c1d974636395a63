"""publish, and module images: views of what becomes a version's memory."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import by_torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from view_models import BUILT, GLOBALS, OUTSIDE, PLACES, UNREACHED, Flat, Mixer

import gpuwm
import gpuwm.image
from gpuwm import _publish

pytestmark = [by_torch, pytest.mark.usefixtures("daemon", "nothing_global")]

_Weak: Any = StorageWeakRef  # torch has no types for it
REFUSED = "modified by an inplace operation"
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"views@v{next(_numbers)}"


@pytest.fixture
def nothing_global() -> Iterator[None]:
    yield
    GLOBALS.clear()


@pytest.mark.parametrize("place", PLACES)
def test_publish_moves_views(name: str, place: str) -> None:
    hold, found = PLACES[place]
    model = Mixer(1, hold)
    view, values = found(model), found(model).clone()
    old = _Weak(model.conv.weight.untyped_storage())
    mapping = gpuwm.publish(model, name)
    assert found(model) is view
    assert torch.equal(view, values)
    assert view.data_ptr() == model.conv.weight.data_ptr()
    assert old.expired()
    with pytest.raises(gpuwm.WriteError, match="private="):
        view.zero_()
    assert "conv.weight" in mapping.check(model).shared


@pytest.mark.parametrize(("place", "empty"), BUILT)
def test_what_was_published_is_bound_elsewhere(name: str, place: str, empty: bool) -> None:
    hold, found = PLACES[place]
    gpuwm.publish(Mixer(1, hold), name, bind=False)
    mapping = gpuwm.attach(name)
    if empty:
        with gpuwm.empty_init():
            model = Mixer(2, hold)
    else:
        model = Mixer(2, hold)
    mapping.bind(model)
    assert torch.equal(found(model), found(Mixer(1, hold)))
    second = name.replace("views@", "views@second-")
    gpuwm.publish(Mixer(3, hold), second, bind=False)
    mapping.switch(second)
    assert torch.equal(found(model), found(Mixer(3, hold)))


@pytest.fixture
def always_warned() -> Iterator[None]:
    """torch says what it says each time, and not only once in a process."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


class Closed(torch.Tensor):
    """It has no storage, and says no to every operation."""

    @staticmethod
    def __new__(cls) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, (4,), dtype=torch.float32)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise AssertionError(f"{func} was called")


def left_by(transform: Callable[..., Any]) -> torch.Tensor:
    """What a function of functorch had as its argument."""
    left: list[torch.Tensor] = []

    def summed(value: torch.Tensor) -> torch.Tensor:
        left.append(value)
        return value.sum()

    transform(summed)(torch.ones(4, 4))
    return left[0]


@pytest.mark.usefixtures("always_warned")
def test_tensors_of_others_are_not_touched(name: str) -> None:
    model = Mixer(1, PLACES["lent"][0])
    with FakeTensorMode():
        others = [torch.empty(4), nn.Parameter(torch.empty(4))]
    others += [torch._to_functional_tensor(torch.ones(4)), torch.eye(4).to_sparse(), Closed()]
    others += [left_by(torch.func.grad), left_by(torch.func.vmap), torch.ones(4).to_mkldnn()]
    waits = torch._lazy_clone(torch.ones(4))  # it gets memory of its own when somebody asks where
    gpuwm.publish(model, name)
    assert torch._C._is_cow_tensor(waits)  # type: ignore[attr-defined]
    assert len(others) == 8


def test_an_abort_leaves_views_views(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hold, found = PLACES["attribute"]
    model = Mixer(1, hold)
    values = model.conv.weight.detach().clone()
    monkeypatch.setattr(_publish.making.Making, "commit_attached", _fails)
    with pytest.raises(ZeroDivisionError):
        gpuwm.publish(model, name)
    assert model.conv.weight.requires_grad
    found(model).add_(1)
    assert torch.equal(model.conv.weight, values + 1)


def _fails(making: object) -> None:
    raise ZeroDivisionError


def test_publish_names_what_can_not_move(name: str) -> None:
    model = Flat()
    before = model.flat.clone()
    with pytest.raises(gpuwm.Unsupported) as caught:
        gpuwm.publish(model, name)
    assert "flat: has memory of one, two, and can't be the same view" in str(caught.value)
    assert "set it to None before, and make it again afterwards" in str(caught.value)
    assert torch.equal(model.flat, before)
    assert model.one.data_ptr() == model.flat.data_ptr()
    model.flat = None
    gpuwm.publish(model, name)
    model.flat = torch.cat([model.one, model.two.flatten()])
    assert torch.equal(model.flat, before)


@pytest.mark.parametrize("kind", UNREACHED)
@pytest.mark.parametrize("publish", [gpuwm.publish, gpuwm.image.publish], ids=["model", "image"])
def test_publish_warns_of_what_it_does_not_find(
    name: str, publish: Callable[..., object], kind: str
) -> None:
    model = Mixer(1, UNREACHED[kind])
    weight = model.conv.weight
    before = weight.data_ptr()
    with pytest.raises(RuntimeWarning, match=f"conv.weight gets other memory, and {OUTSIDE}"):
        publish(model, name)
    assert weight.data_ptr() == before
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(name)
    with pytest.warns(RuntimeWarning, match=OUTSIDE) as caught:
        publish(model, name)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_copy_moves_nothing(name: str) -> None:
    model = Mixer(1, UNREACHED["global"])
    gpuwm.publish(model, name, bind=False)


# ---- module images -----------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
def test_an_image_frees_what_views_had(name: str, place: str) -> None:
    """Views keep the tensor that they were made of, and so did the old memory."""
    hold, found = PLACES[place]
    model = Mixer(1, hold)
    old, values = _Weak(model.conv.weight.untyped_storage()), found(model).clone()
    gpuwm.image.publish(model, name)
    assert torch.equal(found(model), values)
    assert found(model).data_ptr() == model.conv.weight.data_ptr() or "buffer" in place
    assert old.expired() or "buffer" in place  # what overlaps a buffer is private, and stays


def test_install_warns_of_what_it_does_not_find(name: str) -> None:
    gpuwm.image.publish(Mixer(1, lambda *_: None), name)
    model = Mixer(2, UNREACHED["hook"])
    before = model.conv.weight.detach().clone()
    with pytest.raises(RuntimeWarning, match=f"conv.weight gets other memory, and {OUTSIDE}"):
        gpuwm.image.install(model, name)
    assert torch.equal(model.conv.weight, before)
    with pytest.warns(RuntimeWarning, match=OUTSIDE):
        gpuwm.image.install(model, name)
    assert torch.equal(model.conv.weight, Mixer(1, lambda *_: None).conv.weight)


@pytest.mark.parametrize("which", ["published", "installed"])
def test_a_switch_is_a_write_into_a_modules_tensors(name: str, which: str) -> None:
    hold, found = PLACES["attribute"]
    model = Mixer(1, hold)
    mapping = gpuwm.image.publish(model, name)
    second = name.replace("views@", "views@second-")
    gpuwm.image.publish(Mixer(3, hold), second)
    if which == "installed":
        del model, mapping
        gc.collect()  # another attachment would be in the switch's way
        with gpuwm.empty_init():
            model = Mixer(2, hold)
        mapping = gpuwm.image.install(model, name).mapping
    x = torch.ones(2, 4, requires_grad=True)
    products: list[Any] = [x @ found(model), x @ model.conv.weight.view(4, 3)]
    mapping.switch(second)
    for each in products:
        with pytest.raises(RuntimeError, match=REFUSED):
            each.sum().backward()


def test_an_ordinary_module_is_installed_in_silence(name: str) -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

    model = make()
    output = model(torch.ones(2, 4))
    gpuwm.image.publish(model, name)
    fresh = make()
    before = fresh(torch.ones(2, 4))
    gpuwm.image.install(fresh, name)
    assert not torch.equal(fresh(torch.ones(2, 4)), before)
    assert torch.equal(fresh(torch.ones(2, 4)), output)
