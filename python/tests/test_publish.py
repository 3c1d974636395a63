"""gpuwm.publish: a model becomes a version, and its parameters the version's memory."""

from __future__ import annotations

import itertools
import types
import weakref
from typing import Any

import pytest
import torch
from binding_models import Net, addresses, trained, within
from conftest import DEVICE, Daemon, by_torch, run_python
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gpuwm
from gpuwm._publish import publish as publishing
from gpuwm._publish.making import Making, Spec
from gpuwm._publish.parts import Part
from gpuwm._shown.progress import Operation
from gpuwm._torch import guards

pytestmark = by_torch

_count = itertools.count()
IDS = torch.arange(8, device=DEVICE)


@pytest.fixture
def name() -> str:
    return f"published@v{next(_count)}"


def state(daemon: Daemon, name: str) -> str | None:
    model, _, tag = name.partition("@")
    rows = [row for row in daemon.admin.list(model)["versions"] if row["tag"] == tag]
    return str(rows[0]["state"]) if rows else None


# ---- a model -----------------------------------------------------------------------------------


def test_parameters_become_the_version(daemon: Daemon, name: str) -> None:
    model = trained()
    before, parameters = model(IDS), dict(model.named_parameters())
    with gpuwm.publish(model, name) as mapping:
        assert str(mapping.version) == name
        assert set(within(mapping, model)) == {*parameters, "head.weight"}
        assert mapping.check(model).lost == ()
    for key, parameter in model.named_parameters():
        assert parameter is parameters[key]
        assert not parameter.requires_grad
    assert torch.equal(model(IDS), before)
    with pytest.raises(guards.WriteError, match=r"embed\.weight"):
        model.embed.weight.zero_()
    assert daemon.leases(name) == 1
    assert gpuwm.attach(name).version.id == mapping_id(daemon, name)


def mapping_id(daemon: Daemon, name: str) -> str:
    model, _, tag = name.partition("@")
    rows = daemon.admin.list(model)["versions"]
    return next(str(row["version"]) for row in rows if row["tag"] == tag)


def test_buffers_stay_private(daemon: Daemon, name: str) -> None:
    model = trained()
    model.scale.add_(1)
    mapping = gpuwm.publish(model, name)
    assert torch.equal(mapping.torch("scale"), model.scale)
    assert "table" not in mapping  # it isn't persistent
    model.scale.add_(1)
    assert not torch.equal(mapping.torch("scale"), model.scale)


def test_what_is_tied_is_stored_once(daemon: Daemon, name: str) -> None:
    model = trained()
    unique = {id(t): t.nbytes for t in model.state_dict(keep_vars=True).values()}
    mapping = gpuwm.publish(model, name)
    infos = {info.name: info for info in mapping.infos()}
    assert infos["head.weight"].tied == "embed.weight"
    assert mapping.nbytes == sum(unique.values())
    assert model.head.weight is model.embed.weight


def test_two_parameters_over_one_memory_are_tied(daemon: Daemon, name: str) -> None:
    model = nn.ModuleDict({"a": nn.Linear(8, 8, bias=False), "b": nn.Linear(8, 8, bias=False)})
    model["b"].weight = nn.Parameter(model["a"].weight.detach())  # type: ignore[operator]
    values = model["a"].weight.detach().clone()  # type: ignore[operator]
    mapping = gpuwm.publish(model, name)
    assert mapping.nbytes == 8 * 8 * 4
    assert addresses(model)["a.weight"] == addresses(model)["b.weight"]
    assert torch.equal(model["b"].weight, values)


def test_another_process_builds_it(daemon: Daemon, name: str) -> None:
    model = trained()
    gpuwm.publish(model, name)
    other = gpuwm.build(name, lambda: Net().eval())
    assert torch.equal(other(IDS), model(IDS))


def test_it_can_be_followed_and_published_again(daemon: Daemon, name: str) -> None:
    model = trained(0)
    mapping = gpuwm.publish(model, name)
    gpuwm.publish(trained(1), name + "-next", bind=False)
    mapping.switch(name + "-next")
    assert torch.equal(model(IDS), trained(1)(IDS))
    again = gpuwm.publish(model, name + "-again")
    assert mapping.exports == 0
    assert set(within(again, model)) >= {"embed.weight", "hidden.bias"}
    assert torch.equal(model(IDS), trained(1)(IDS))


def test_private_names_are_not_shared(daemon: Daemon, name: str) -> None:
    model = trained()
    mapping = gpuwm.publish(model, name, private="hidden.*")
    assert not any(key.startswith("hidden") for key in within(mapping, model))
    model.hidden.weight.zero_()
    assert mapping.torch("hidden.weight").count_nonzero() > 0
    with pytest.raises(gpuwm.Invalid, match=r"nothing\.\*"):
        gpuwm.publish(trained(), name + "-not", private="nothing.*")
    assert state(daemon, name + "-not") is None


def test_a_switch_may_ask_for_fewer_fields_than_the_attach(daemon: Daemon, name: str) -> None:
    layout = {"dtype": "float32", "world": 1}
    other = f"{name}b"
    for ref, weights in ((name, "a"), (other, "b")):
        gpuwm.publish(trained(), ref, bind=False, key={**layout, "weights": weights})
    with gpuwm.attach(name, key={**layout, "weights": "a"}) as mapping:
        with pytest.raises(gpuwm.Mismatch, match='weights: "a" was asked for, it has "b"'):
            mapping.switch(other)
        with pytest.raises(gpuwm.Mismatch, match="has no field tp"):
            mapping.switch(other, key={**layout, "tp": 2})
        with pytest.raises(TypeError, match="^key=.*: give fields by name"):
            mapping.switch(other, key=["dtype"])  # type: ignore[arg-type]
        assert str(mapping.version) == name
        assert str(mapping.switch(other, key=layout)) == other
        assert str(mapping.switch(name)) == name
        assert str(mapping.switch(other, key={})) == other


def test_alias_files_metadata(daemon: Daemon, name: str, tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text("{}")
    mapping = gpuwm.publish(
        trained(),
        name,
        alias="prod",
        files=[tmp_path / "config.json"],
        metadata={"made": "today"},
        key={"dtype": "float32", "world": 1},
    )
    assert mapping.files["config.json"] == b"{}"
    assert mapping.metadata["made"] == "today"
    assert gpuwm.attach("published@prod", key={"world": 1}).version.id == mapping.version.id
    with pytest.raises(gpuwm.Mismatch, match="dtype"):
        gpuwm.attach(name, key={"dtype": "float16"})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text("{}")
    with pytest.raises(gpuwm.Invalid, match=r"config\.json"):
        gpuwm.publish(trained(), name, files=[tmp_path / "config.json", tmp_path / "b/config.json"])


@pytest.mark.parametrize("inside", [True, False])
def test_inference_mode(daemon: Daemon, name: str, inside: bool) -> None:
    with torch.inference_mode(not inside):  # one is made in it, the other published
        model = trained()
        before = model(IDS)
    with torch.inference_mode(inside):
        mapping = gpuwm.publish(model, name)
    with torch.inference_mode():
        assert torch.equal(model(IDS), before)
    assert mapping.check(model).lost == ()


@pytest.mark.filterwarnings("ignore:RNN module weights:UserWarning")  # as bind's docs say
@pytest.mark.parametrize(
    "kind", [lambda: nn.LSTM(8, 8, 2), lambda: nn.utils.spectral_norm(nn.Linear(8, 8)).eval()]
)
def test_modules_that_hold_their_parameters(daemon: Daemon, name: str, kind: Any) -> None:
    model, given = kind(), torch.ones(2, 1, 8)
    before = model(given)
    mapping = gpuwm.publish(model, name)
    assert torch.equal(model(given)[0], before[0])
    assert mapping.check(model).lost == ()


def test_without_bind_the_model_stays(daemon: Daemon, name: str) -> None:
    model = trained()
    before = addresses(model)
    version = gpuwm.publish(model, name, bind=False)
    assert str(version) == name
    assert addresses(model) == before
    assert daemon.leases(name) == 0
    model.embed.weight.detach().zero_()
    assert gpuwm.attach(name).torch("embed.weight").count_nonzero() > 0


def test_the_memory_of_what_moved_is_freed(
    daemon: Daemon, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
    other = nn.Linear(64, 64, bias=False)
    other.weight = nn.Parameter(model[0].weight.detach())  # type: ignore[operator]
    model.append(other)
    old = [weakref.ref(p.untyped_storage()) for p in model[:8].parameters()]
    alive: list[int] = []
    export = Making.export

    def counted(self: Making, position: int) -> Any:
        alive.append(sum(storage() is not None for storage in old))
        return export(self, position)

    monkeypatch.setattr(Making, "export", counted)
    gpuwm.publish(model, name)
    # Each is written, then moved; and once two parameters are.
    assert alive == [8, 8, 8, *(n for n in range(7, 0, -1) for _ in range(2))]


# ---- what can't be published -------------------------------------------------------------------


class _Quantised(nn.Parameter):
    """As bitsandbytes has them: scales in an attribute."""


class _State:
    def __init__(self) -> None:
        self.absmax = torch.ones(2)

    def __call__(self) -> torch.Tensor:
        return self.absmax


class _Slotted(nn.Parameter):
    __slots__ = ("states",)
    states: tuple[torch.Tensor, ...]


def _refusals() -> dict[str, tuple[torch.Tensor, str]]:
    quantised = _Quantised(torch.zeros(4, dtype=torch.uint8), requires_grad=False)
    quantised.quant_state = _State()  # type: ignore[attr-defined]
    deep, slotted = _Quantised(torch.zeros(4)), _Slotted(torch.zeros(4))
    deep.states = {"first": [_State()]}  # type: ignore[attr-defined]
    slotted.states = (torch.ones(2),)
    with FakeTensorMode():
        fake = torch.ones(3)
    return {
        "sparse": (torch.eye(3).to_sparse(), "sparse_coo"),
        "meta": (torch.empty(3, device="meta"), "no memory"),
        "complex": (torch.zeros(2, dtype=torch.complex128), "complex128"),
        "expanded": (torch.zeros(1).expand(1000), "4000 bytes"),
        "quantised": (quantised, "_Quantised.*quant_state"),
        "quantised deeply": (deep, "_Quantised.*states"),
        "quantised in a slot": (slotted, "_Slotted.*states"),
        "nested": (torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged), "Nested"),
        "fake": (fake, "a FakeTensor .*not plain data"),
    }


@pytest.mark.parametrize("kind", list(_refusals()))
def test_refused_by_name(daemon: Daemon, name: str, kind: str) -> None:
    tensor, why = _refusals()[kind]
    model = nn.Module()
    model.fine = nn.Parameter(torch.ones(3))
    model.register_buffer("odd", tensor)
    before = model.fine.data_ptr()
    for source in (model, {"odd": tensor}):
        with pytest.raises(gpuwm.Unsupported, match=f"odd: .*{why}"):
            gpuwm.publish(source, name)
    assert state(daemon, name) is None
    assert model.fine.data_ptr() == before


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_in_one_storage_is_refused(daemon: Daemon, name: str) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(gpuwm.Unsupported, match="odd: .*not plain data"):
        gpuwm.publish({"odd": nested}, name)


def test_all_that_is_refused_is_listed(daemon: Daemon, name: str) -> None:
    with pytest.raises(gpuwm.Unsupported) as raised:
        gpuwm.publish({key: tensor for key, (tensor, _) in _refusals().items()}, name)
    assert all(f"\n  {key}: " in str(raised.value) for key in _refusals())


def test_what_writes_into_itself_is_refused(daemon: Daemon, name: str) -> None:
    with pytest.raises(gpuwm.Unsupported, match="max_norm"):
        gpuwm.publish(nn.Sequential(nn.Embedding(4, 4, max_norm=1)), name)
    gpuwm.publish(nn.Sequential(nn.Embedding(4, 4, max_norm=1)), name, bind=False)


def test_nothing_to_publish(daemon: Daemon, name: str) -> None:
    with pytest.raises(gpuwm.Invalid, match="no tensors"):
        gpuwm.publish(nn.ReLU(), name)
    with pytest.raises(gpuwm.Invalid, match="no tensors"):
        gpuwm.publish({}, name)
    with pytest.raises(TypeError, match="^source=.*: give a module of torch, or a dict of tensors"):
        gpuwm.publish([torch.ones(2)], name)  # type: ignore[call-overload]


def test_a_name_that_is_taken(daemon: Daemon, name: str) -> None:
    gpuwm.publish({"a": torch.ones(2)}, name)
    model = trained()
    before = addresses(model)
    with pytest.raises(gpuwm.Exists, match=name):
        gpuwm.publish(model, name)
    assert addresses(model) == before


# ---- layouts and dtypes ------------------------------------------------------------------------


def test_strides(daemon: Daemon, name: str) -> None:
    dense = torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    gaps = torch.arange(24.0).reshape(4, 6)[:, 1:3]
    given = {"dense": dense, "gaps": gaps, "one": torch.ones(1, 3).t()}
    mapping = gpuwm.publish(dict(given), name)
    for key, tensor in given.items():
        assert torch.equal(mapping.torch(key), tensor), key
    assert mapping.torch("dense").stride() == dense.stride()
    assert mapping.torch("gaps").is_contiguous()
    assert mapping.nbytes == sum(t.nbytes for t in given.values())


def test_conjugates_and_views_are_their_values(daemon: Daemon, name: str) -> None:
    z = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex64)
    given = {"z": z, "conj": z.conj(), "imag": z.conj().imag, "zero": torch.tensor(7)}
    mapping = gpuwm.publish(dict(given), name, bind=False)
    shared = gpuwm.attach(mapping.id)
    for key, tensor in given.items():
        assert torch.equal(shared.torch(key), tensor), key
    assert shared.torch("zero").shape == ()


@pytest.mark.parametrize("bind", [True, False])
def test_every_dtype(daemon: Daemon, name: str, bind: bool) -> None:
    from gpuwm._torch.sources import NAMES

    data = torch.randint(0, 2, (4, 16), dtype=torch.uint8)
    given = {kind: data.view(dtype) for dtype, kind in NAMES.items()}
    given["empty"] = torch.empty(0, 3, dtype=torch.float8_e4m3fn)
    tensors = {key: tensor.clone() if key != "F4" else tensor for key, tensor in given.items()}
    gpuwm.publish(tensors, name, bind=bind)  # type: ignore[call-overload]
    shared = gpuwm.attach(name)
    for key, tensor in given.items():
        there = shared.torch(key)
        assert (there.dtype, there.shape) == (tensor.dtype, tensor.shape)
        assert there.view(torch.uint8).equal(tensor.view(torch.uint8)), key
        assert tensors[key].dtype == tensor.dtype
        assert (tensors[key].data_ptr() == there.data_ptr()) == bind or key == "empty"


def test_a_dict_gets_shared_tensors(daemon: Daemon, name: str) -> None:
    mine = torch.arange(4.0)
    tensors = {"a": mine, "b": mine, "c": torch.ones(2)}
    mapping = gpuwm.publish(tensors, name)
    assert tensors["a"].data_ptr() == mapping.torch("a").data_ptr() == tensors["b"].data_ptr()
    assert mine.add_(1).tolist() == [1, 2, 3, 4]  # who holds the old one keeps it
    assert tensors["a"].tolist() == [0, 1, 2, 3]


# ---- failures midway ---------------------------------------------------------------------------


@pytest.mark.parametrize("fails_at", [1, 2, 5, 8])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, gpuwm.NoRoom])
def test_an_abort_leaves_the_model_usable(
    daemon: Daemon,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    fails_at: int,
    kind: type[BaseException],
) -> None:
    model = trained()
    before, count = model(IDS), itertools.count(1)
    export = Making.export

    def failing(self: Making, position: int) -> Any:
        if next(count) == fails_at:
            raise kind("midway")
        return export(self, position)

    monkeypatch.setattr(Making, "export", failing)
    with pytest.raises(kind):
        gpuwm.publish(model, name)
    monkeypatch.undo()
    assert state(daemon, name) in (None, "failed")
    assert torch.equal(model(IDS), before)
    model(IDS).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()  # it is the process's own, and trains
    after = model(IDS).detach()
    assert not torch.equal(after, before)
    gpuwm.publish(model, name + "-again")
    assert torch.equal(model(IDS), after)


def test_a_failed_commit_leaves_the_model_usable(daemon: Daemon, name: str) -> None:
    model = trained()
    before = model(IDS)

    def give_up(publish: str) -> None:
        """Another part, which ends."""
        other = gpuwm.connect()
        what = gpuwm._publish.making.What(name, "host", 1, 2, publish, None, None)
        making = Making(other, what, [gpuwm._publish.making.Spec("x", "F32", (1,))])
        making.abort("the test wants it")

    with pytest.raises(gpuwm.Cancelled):
        gpuwm.publish(model, name, world=2, announce=give_up)
    assert state(daemon, name) in (None, "failed")
    assert torch.equal(model(IDS), before)
    with torch.no_grad():
        model.embed.weight.add_(1)


def test_ctrl_c_while_other_parts_are_waited_for(daemon: Daemon, name: str) -> None:
    """The part stays; the model can be used, and the process ends as ever."""
    run_python(
        "import os, signal, sys, threading, time, torch, gpuwm\n"
        "client, model, given = gpuwm.connect(), torch.nn.Linear(4, 4), torch.ones(4)\n"
        "before = model(given)\n"
        "def interrupt():\n"
        "    row = {}\n"
        "    while not row or row['parts'][0]['state'] != 'ready':\n"
        "        time.sleep(0.005)\n"
        "        rows = client.list('published')['versions']\n"
        "        row = next(r for r in rows if r['tag'] == sys.argv[1])\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "try:\n"
        "    gpuwm.publish(model, 'published@' + sys.argv[1], world=2,\n"
        "                  announce=lambda publish: threading.Thread(target=interrupt).start())\n"
        "except KeyboardInterrupt:\n"
        "    assert torch.equal(model(given), before)\n"
        "else:\n"
        "    raise SystemExit('it was not interrupted')\n",
        name.split("@")[1],
    )


def test_users_and_groups_who_may_join_are_named(daemon: Daemon, name: str) -> None:
    """Who is named and who is not: tests/system/publishers.c."""
    tensor = {"x": torch.ones(1)}
    gpuwm.publish(tensor, name, bind=False, join_uids=[1001, 1002], join_gids=(2000,))
    assert state(daemon, name) == "ready"
    with pytest.raises(TypeError, match="users or groups"):
        gpuwm.publish(tensor, name + "b", bind=False, join_uids=1001)  # type: ignore[call-overload]
    with pytest.raises(gpuwm.Invalid, match="join_gids=-1"):
        gpuwm.publish(tensor, name + "b", bind=False, join_gids=[-1])
    with pytest.raises(gpuwm.Invalid, match="the limit is 16"):
        gpuwm.publish(tensor, name + "b", bind=False, join_uids=range(17))

    def join(publish: str) -> None:
        with pytest.raises(gpuwm.Invalid, match="which joins a publish"):
            gpuwm.publish(
                tensor, name + "b", bind=False, rank=1, world=2, join=publish, join_uids=[1001]
            )
        raise gpuwm.Cancelled("the test wants it")

    with pytest.raises(gpuwm.Cancelled):
        gpuwm.publish(tensor, name + "b", bind=False, world=2, announce=join)


def test_every_device_finishes_before_bytes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    making: Any = types.SimpleNamespace(order=list)
    parts = [
        Part(Spec(f"t{at}", "U8", (1,)), device, lambda making, position: None)
        for at, device in enumerate(["cuda:1", "cpu", "cuda:0", "cuda:1"])
    ]
    publishing._fill(making, parts, Operation("publish", "t@v1"))
    assert sorted(waited) == ["cuda:0", "cuda:1"]
