"""gpuwm.publish(…, dtype=…): floating-point tensors are cast as they are copied. From memory of
torch and NumPy on the CPU, to host or a GPU."""

from __future__ import annotations

import copy
import itertools
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from binding_models import Net, addresses, trained
from conftest import DEVICE, Daemon, by_torch, run_python
from torch.utils._python_dispatch import TorchDispatchMode

import gpuwm
from gpuwm._torch.sources import NAMES

_count = itertools.count()
IDS = torch.arange(8)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture
def name() -> str:
    return f"cast@v{next(_count)}"


def published(daemon: Daemon, name: str, source: Any, dtype: Any) -> gpuwm.Mapping:
    gpuwm.publish(source, name, bind=False, dtype=dtype, device=daemon.device)
    return gpuwm.attach(name)


def raw(tensor: torch.Tensor) -> bytes:
    """Its bytes, with the last dimension fastest."""
    plain = tensor.resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_cast_and_all_else_is_as_it_was(
    daemon: Daemon, name: str, dtype: torch.dtype
) -> None:
    data = torch.randint(0, 2, (4, 16), dtype=torch.uint8)
    given = {kind: data.view(other) for other, kind in NAMES.items()}
    given |= {f"value {i}": torch.randn(3, 5, dtype=other) for i, other in enumerate(FLOATS)}
    given |= {"scalar": torch.tensor(1 / 3), "empty": torch.empty(0, 3)}
    before = {key: (raw(tensor), tensor.data_ptr()) for key, tensor in given.items()}
    mapping = published(daemon, name, given, dtype)
    for key, tensor in given.items():
        stored = tensor.to(dtype) if tensor.dtype in FLOATS else tensor
        assert mapping[key].dtype == NAMES[stored.dtype], key
        assert mapping[key].tobytes() == raw(stored), key
        assert (raw(tensor), tensor.data_ptr()) == before[key]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_views(daemon: Daemon, name: str, dtype: torch.dtype) -> None:
    base, z = torch.randn(2, 3, 4), torch.randn(6, dtype=torch.complex64)
    given = {"dense": base.permute(2, 0, 1), "gaps": base[:, 1:3], "negated": z.conj().imag}
    given |= {"negated in place": torch._neg_view(base), "conjugate": z.conj()}
    mapping = published(daemon, name, given, dtype)
    assert mapping["dense"].strides == given["dense"].stride()
    expected = {key: raw(given[key].to(dtype)) for key in ("gaps", "negated", "negated in place")}
    expected |= {"dense": raw(base.to(dtype)), "conjugate": raw(given["conjugate"])}
    assert {key: mapping[key].tobytes() for key in mapping} == expected


def test_a_model_stays_as_it_is(daemon: Daemon, name: str) -> None:
    model = trained()
    before, addressed = copy.deepcopy(model), addresses(model)
    halved = copy.deepcopy(model).to(torch.bfloat16).state_dict()
    mapping = published(daemon, name, model, torch.bfloat16)
    infos = {info.name: info for info in mapping.infos()}
    assert infos["head.weight"].tied == "embed.weight"
    assert infos["norm.num_batches_tracked"].dtype == "I64"
    assert mapping.nbytes == sum(t.nbytes for k, t in halved.items() if k != "head.weight")
    assert {key: mapping[key].tobytes() for key in mapping} == {
        k: raw(t) for k, t in halved.items()
    }
    assert addresses(model) == addressed
    assert torch.equal(model(IDS), before(IDS))
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())


@by_torch
def test_it_is_the_version_of_a_model_that_was_cast(daemon: Daemon, name: str) -> None:
    model = trained()
    version = gpuwm.publish(model, name, bind=False, dtype="bfloat16")
    other = gpuwm.build(name, lambda: Net().to(torch.bfloat16).eval())
    mapping = gpuwm.publish(model.to(torch.bfloat16), name + "-bound")
    assert mapping.version.content == version.content
    assert torch.equal(other(IDS.to(DEVICE)), model(IDS.to(DEVICE)))
    assert mapping.switch(name).id == version.id
    assert mapping.check(model).lost == ()


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Names of what torch does."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.done.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@by_torch
def test_tensors_are_cast_where_they_go(daemon: Daemon, name: str) -> None:
    given = {"dense": torch.randn(4, 4), "gaps": torch.randn(4, 4)[:, 1:3]}
    with _Operations() as operations:
        gpuwm.publish(given, name, bind=False, dtype=torch.float16)
    assert set(operations.done) == {"detach", "copy_"}  # neither makes memory


def test_a_model_that_is_to_be_bound_is_cast_before(daemon: Daemon, name: str) -> None:
    model = trained()
    before = addresses(model)
    for source in (model, dict(model.state_dict())):
        with pytest.raises(gpuwm.Invalid, match=r"bind=False .*model\.to\(dtype\)"):
            gpuwm.publish(source, name, dtype=torch.bfloat16)  # type: ignore[call-overload]
    assert addresses(model) == before
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(name)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8,
        torch.bool,
        torch.complex64,
        torch.float8_e4m3fn,
        np.int32,
        float,
        ">f2",
        "no",
    ],
)
def test_other_dtypes_are_refused(daemon: Daemon, name: str, dtype: Any) -> None:
    with pytest.raises(gpuwm.Invalid, match=r"dtype=.* one of float16, bfloat16, float32, float64"):
        gpuwm.publish({"w": torch.ones(2)}, name, bind=False, dtype=dtype)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.attach(name)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.dtype("f8"), "float32", ml_dtypes.bfloat16, torch.bfloat16]
)
def test_arrays(daemon: Daemon, name: str, dtype: Any) -> None:
    base = np.random.default_rng(0).normal(size=(4, 6))
    given = {
        "plain": base,
        "same": base,
        "turned": base.astype(np.float32).T,
        "half": base.astype(ml_dtypes.bfloat16),
        "scalar": np.array(1 / 3),
        "number": np.arange(3),
        "yes": np.array([True, False]),
        "small": base.astype(ml_dtypes.float8_e4m3fn),
    }
    mapping = published(daemon, name, given, dtype)
    to = np.dtype(ml_dtypes.bfloat16 if dtype is torch.bfloat16 else dtype)
    cast = {"plain", "same", "turned", "half", "scalar"}
    for key, array in given.items():
        stored = array.astype(to) if key in cast else array
        assert mapping[key].tobytes() == stored.tobytes(), key
        assert mapping[key].dtype == NAMES[getattr(torch, str(stored.dtype))]
    assert {info.name: info.tied for info in mapping.infos()}["same"] == "plain"


def test_arrays_without_torch(daemon: Daemon, name: str) -> None:
    run_python(
        "import sys, gpuwm, numpy\n"
        "gpuwm.publish({'w': numpy.ones(8)}, sys.argv[1], bind=False, dtype='float16')\n"
        "assert gpuwm.attach(sys.argv[1])['w'].tobytes() == numpy.ones(8, 'f2').tobytes()\n"
        "assert 'torch' not in sys.modules\n",
        name,
    )


def test_arrays_that_numpy_can_not_cast_are_named(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = np.ones(2, ml_dtypes.bfloat16)
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    given = {"w": np.ones(2), "b": np.ones(2, np.float32), "n": np.arange(2), "there": there}
    with pytest.raises(gpuwm.Unsupported, match="install ml_dtypes") as raised:
        gpuwm.publish(given, name, bind=False, dtype="bfloat16")
    assert [line.split(":")[0] for line in str(raised.value).split("\n  ")[1:]] == ["w", "b"]
    del given["w"], given["b"]
    published(daemon, name, given, "bfloat16")
