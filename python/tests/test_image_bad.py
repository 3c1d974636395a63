"""Modules and versions that don't fit each other, damaged records, and what fails midway."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import Daemon, by_torch, run_python
from image_models import Holder, Kernel, Scales, installed, loaded, numbers
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import gpuwm
import gpuwm.image
from gpuwm._publish.making import Making
from gpuwm.image import record

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]


tags = itertools.count(1)


def refused(model: nn.Module, fresh: nn.Module, **options: Any) -> list[str]:
    """Problems of an install, which changes nothing."""
    before = gpuwm.image.describe(fresh)
    with pytest.raises(gpuwm.BindError) as error:
        installed(model, fresh, **options)
    assert gpuwm.image.differences(before, fresh) == []
    assert all(problem in str(error.value) for problem in error.value.problems)
    return list(error.value.problems)


def test_another_structure() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    fresh = nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.Sequential(nn.Linear(2, 2)))
    problems = "\n".join(refused(model, fresh))
    for expected in (
        "module: 1 is a torch.nn.modules.activation.ReLU in the version, a "
        "torch.nn.modules.activation.GELU here",
        "module: 2 is a torch.nn.modules.linear.Linear in the version, a "
        "torch.nn.modules.container.Sequential here",
        "module: 2.0 is a torch.nn.modules.linear.Linear here, the version has none",
        "module: 3 is a torch.nn.modules.container.Sequential in the version, there is none here",
        "module: 3.0 is a torch.nn.modules.activation.ReLU in the version, there is none here",
    ):
        assert expected in problems


def test_other_helper_objects() -> None:
    tensor = numbers(2)
    model = Holder(
        kernel=Kernel(tensor, 1),
        gone=Kernel(tensor, 2),
        run=len,
        method=Kernel(tensor, 3),
        pair=(Scales(tensor), 1),
    )
    fresh = Holder(kernel=Scales(tensor), run=print, method=None, pair=(None, 1))
    problems = refused(model, fresh)
    assert [problem.split(":")[0] for problem in problems] == ["object"] * 5
    told = "\n".join(problems)
    for expected in (
        "kernel is a image_models.Kernel in the version, a image_models.Scales here",
        "gone is a image_models.Kernel in the version, not there here",
        "run is a function builtins.len in the version, a function builtins.print here",
        "method is a image_models.Kernel in the version, None here",
        "pair[0] is a image_models.Scales in the version, None here",
    ):
        assert expected in told


def test_what_is_a_module_or_object_in_one_and_a_value_in_the_other() -> None:
    model = Holder(one=None, two=numbers(2), three=numbers(2), four=numbers(1))
    fresh = Holder(one=nn.ReLU(), two=nn.ReLU(), three=Kernel(numbers(1), 1), four=None)
    told = "\n".join(refused(model, fresh))
    assert "one is None in the version, a torch.nn.modules.activation.ReLU here" in told
    assert "two is a tensor in the version, a torch.nn.modules.activation.ReLU here" in told
    assert "three is a tensor in the version, a image_models.Kernel here" in told


def test_a_class_of_parameters_that_nobody_imported() -> None:
    class Mine(nn.Parameter):
        pass

    model = Holder(weight=Mine(numbers(2)))  # pytest's assert would hold what it is made of
    assert refused(model, Holder()) == [
        "class: weight is a test_image_bad.test_a_class_of_parameters_that_nobody_imported.<locals>"
        ".Mine in the version, and this process has imported no such class: import it"
    ]


def test_an_embedding_that_writes() -> None:
    model = nn.Embedding(4, 2, max_norm=1.0)
    with pytest.raises(gpuwm.Unsupported, match=r"written: Embedding with max_norm=1.0"):
        gpuwm.image.publish(model, "writes@v1")
    gpuwm.image.publish(model, "writes@v1", private="weight")
    with pytest.raises(gpuwm.BindError, match=r"written: Embedding with max_norm=1.0"):
        gpuwm.image.install(nn.Embedding(4, 2, max_norm=1.0), "writes@v1")
    gpuwm.image.install(nn.Embedding(4, 2, max_norm=1.0), "writes@v1", private="*")


def computed() -> torch.Tensor:
    return numbers(2).requires_grad_() * 2


def faked() -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(2)


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "layout torch.sparse_coo": lambda: numbers(2).to_sparse(),
    "has no memory": lambda: torch.empty(2, device="meta"),
    "a conjugate or negated view": lambda: numbers(2).to(torch.complex64).conj(),
    "computed with gradients": computed,
    "lazy": lambda: nn.UninitializedParameter(),
    "a FakeTensor of layout .*neither plain data": faked,
}


@pytest.mark.parametrize("why", UNSTORABLE)
def test_what_no_version_can_have(why: str) -> None:
    model = Holder(fine=numbers(2))
    model.register_buffer("held", None)
    model.__dict__["bad"] = UNSTORABLE[why]()
    with pytest.raises(gpuwm.Unsupported, match=rf"nothing was published:\n  bad: .*{why}"):
        gpuwm.image.publish(model, "unstorable@v1")
    assert type(model.fine) is torch.Tensor


def test_an_address_of_a_tensor() -> None:
    weight = numbers(2)
    with pytest.raises(gpuwm.Unsupported, match=r"pointer: is the address of weight, which"):
        gpuwm.image.publish(Holder(weight=weight, pointer=weight.data_ptr()), "address@v1")


def test_what_can_be_no_image() -> None:
    with pytest.raises(gpuwm.Invalid, match=r"no tensors.*publish a module that has some"):
        gpuwm.image.publish(nn.ReLU(), "empty@v1")
    with pytest.raises(TypeError, match="^model=.*: give a module of torch"):
        gpuwm.image.publish({"a": numbers(1)}, "dict@v1")  # type: ignore[arg-type]
    with pytest.raises(gpuwm.Invalid, match=r"private: 'no\*' fits no parameter"):
        gpuwm.image.publish(nn.Linear(2, 2), "globs@v1", private="no*")
    with pytest.raises(gpuwm.Invalid, match=r"files= has gpuwm.image.json"):
        gpuwm.image.publish(nn.Linear(2, 2), "files@v1", files={"gpuwm.image.json": b""})


def test_a_record_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "FILES_BYTES", 1000)
    model = Holder(weight=numbers(1), words={str(n): n for n in range(100)})
    with pytest.raises(gpuwm.Unsupported, match=r"words, a builtins.dict with 100 .*opaque="):
        gpuwm.image.publish(model, "large@v1")


def test_arguments_of_install() -> None:
    mapping = gpuwm.image.publish(nn.Linear(2, 2), "arguments@v1")
    with pytest.raises(gpuwm.Invalid, match=r"private: 'no\*' fits no"):
        gpuwm.image.install(nn.Linear(2, 2), mapping, private="no*")
    with pytest.raises(gpuwm.Invalid, match=r"attached already, and wait is for attaching"):
        gpuwm.image.install(nn.Linear(2, 2), mapping, wait=1)
    with pytest.raises(gpuwm.NotFound):
        gpuwm.image.install(nn.Linear(2, 2), "arguments@v2")
    with pytest.raises(gpuwm.Invalid, match=r"no module of the model"):
        gpuwm.image.install(nn.Linear(2, 2), mapping, replay=[(nn.ReLU(), print)])
    for wrong in ([nn.ReLU()], 3, [(nn.ReLU(), 1)]):
        with pytest.raises(TypeError, match=r"replay.*pairs of a module and a function"):
            gpuwm.image.install(nn.Linear(2, 2), mapping, replay=wrong)  # type: ignore[arg-type]


# ---- versions that are no image, or a damaged one ----------------------------------------------


def test_a_version_that_is_no_image() -> None:
    gpuwm.publish(nn.Linear(2, 2), "none@v1")
    with pytest.raises(gpuwm.Invalid, match=r"none@v1 is no module image.*gpuwm.image.publish"):
        gpuwm.image.install(nn.Linear(2, 2), "none@v1")


def test_a_part_of_an_image() -> None:
    gpuwm.image.publish(nn.Linear(2, 2), "part@v1")
    with pytest.raises(gpuwm.Invalid, match=r"only some tensors of part@v1.*without layers="):
        gpuwm.image.install(nn.Linear(2, 2), "part@v1", glob="bias")


def content_of(model: nn.Module) -> dict[str, Any]:
    """The record that publishing a module makes."""
    mapping = gpuwm.image.publish(model, f"record@v{next(tags)}")
    found: dict[str, Any] = json.loads(mapping.files[record.FILE])
    return found


def change(path: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    """A damage: "tensors.0.at" becomes another value."""

    def damage(content: Any) -> Any:
        *keys, last = (int(key) if key.isdigit() else key for key in path.split("."))
        for key in keys:
            content = content[key]
        content[last] = value

    return damage


DAMAGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (change("schema", 0), "its schema is 0"),
    (change("schema", "1"), "its schema is '1'"),
    (change("stored.0", "no.such"), "it names tensor no.such, and the version has none"),
    (change("stored", None), "stored is no list"),
    (change("tensors.0.at", 4), "needs bytes 4 to 20 of weight, which has 16 bytes"),
    (lambda content: content["tensors"][0].update(at=2, shape=[1, 2]), "needs bytes 2 to 10"),
    (change("tensors.0.at", -4), "begins at -4 bytes"),
    (change("tensors.0.shape", [2, 3]), "needs bytes 0 to 20"),
    (change("tensors.0.shape", [1 << 62, 1 << 62]), "of weight, which has 16 bytes"),
    (change("tensors.0.shape", [2]), "has the shape"),
    (change("tensors.0.strides", [-1, 1]), "has the shape"),
    (change("tensors.0.in", 7), "lies in tensor 7 of 2"),
    (change("tensors.0.in", None), "lies nowhere"),
    (change("tensors.0.names", []), "a tensor without a name"),
    (change("tensors.0.class", 99), "class 99"),
    (change("tensors.0.attributes", 99), "attributes of tensor weight"),
    (change("tensors.0.parts", {"low": 99}), "parts of tensor weight"),
    (change("tensors.0.parts", {"low": 0}), "tensor weight is a part of itself"),
    (change("ignored", [1]), "ignored is no list"),
    (change("modules", 0), "0 modules"),
    (change("modules", 3), "3 modules"),
    (change("nodes.0", []), "node []"),
    (change("nodes.0.1", "planet"), "node"),
    (change("nodes.0.1", "list"), "the module is no list"),
    (change("nodes.0", ["", "list", 0, []]), "a module that is said to be none"),
    (change("nodes.0.3.0", ["parameter", "weight"]), "slot of "),
    (change("nodes.0.3.0.1", 3), "key 3 of "),
    (change("nodes.0.3.0.2", {"tensor": 9}), "tensor 9 of "),
    (change("nodes.0.3.0.2", {"node": -1}), "node -1 of "),
    (change("nodes.0.3.0.2", {"size": ["a"]}), "value of "),
    (change("nodes.0.3.0.2", {"planet": 1}), "value of "),
    (change("nodes.0.3.0.2", {"other": 1}), "value {'other': 1}"),
    (change("nodes.0.3.0.2", {}), "value {}"),
    (change("nodes.0.3.0.2", [1]), "value [1]"),
    (change("class_tensors", ["weight"]), "what it says of tensors on classes"),
    (change("class_tensors", {"Layer.scale": 1}), "what it says of tensors on classes"),
    (change("contents", ["held"]), "what it says of objects"),
    (change("contents", {"held": 1}), "what it says of objects"),
]


@pytest.mark.parametrize(("damage", "expected"), DAMAGES, ids=[said for _, said in DAMAGES])
def test_a_damaged_record(damage: Callable[[Any], Any], expected: str, daemon: Daemon) -> None:
    content = content_of(nn.Linear(2, 2))
    damage(content)
    told = damaged(json.dumps(content).encode())
    assert expected in told
    assert "publish the image anew" in told


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100000, b"[]", b"{}"])
def test_a_record_that_is_none(text: bytes) -> None:
    assert "damaged" in damaged(text)


def damaged(text: bytes) -> str:
    model = nn.Linear(2, 2)
    name = f"damaged@v{next(tags)}"
    gpuwm.publish(model, name, files={record.FILE: text})
    fresh = nn.Linear(2, 2)
    weight = fresh.weight.data_ptr()
    with pytest.raises(gpuwm.Damaged) as error:
        gpuwm.image.install(fresh, name)
    assert fresh.weight.data_ptr() == weight
    return str(error.value)


def test_a_tuple_that_holds_itself() -> None:
    content = content_of(Holder(weight=numbers(4), pair=(Scales(numbers(4)), 1)))
    for node in content["nodes"]:
        if node[0] == "pair":
            node[3][0][2] = {"node": content["nodes"].index(node)}
    held = {"weight": numbers(4), "pair[0].weight": numbers(4)}
    gpuwm.publish(held, "cycle@v1", files={record.FILE: text_of(content)})
    with pytest.raises(gpuwm.Damaged, match=r"pair.* holds itself"):
        gpuwm.image.install(Holder(pair=None), "cycle@v1")


def text_of(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def test_an_image_of_a_newer_gpuwm() -> None:
    content = content_of(nn.Linear(2, 2))
    content["schema"] = 2
    gpuwm.publish(nn.Linear(2, 2), "newer@v1", files={record.FILE: text_of(content)})
    with pytest.raises(gpuwm.Unsupported, match=r"schema 2, and .* schema 1: install a newer"):
        gpuwm.image.install(nn.Linear(2, 2), "newer@v1")


def test_what_this_process_does_not_know() -> None:
    content = content_of(Holder(weight=numbers(4), value=1))
    (slot,) = (slot for slot in content["nodes"][0][3] if slot[1] == "value")
    slot[2] = {"enum": ["no.such.Enum", "ONE"]}
    gpuwm.publish({"weight": numbers(4)}, "enum@v1", files={record.FILE: text_of(content)})
    with pytest.raises(gpuwm.BindError, match=r"value: value: .*not imported no.such.Enum"):
        gpuwm.image.install(Holder(), "enum@v1")
    content["tensors"][0]["dtype"] = "float1"
    gpuwm.publish({"weight": numbers(4)}, "dtype@v1", files={record.FILE: text_of(content)})
    with pytest.raises(gpuwm.Unsupported, match=r"torch .* has no dtype 'float1'.*install a torch"):
        gpuwm.image.install(Holder(), "dtype@v1")


# ---- replay ------------------------------------------------------------------------------------


def test_scratch_memory_that_something_holds() -> None:
    held: list[torch.Tensor] = []

    def hold(layer: nn.Module) -> None:
        held.append(torch.Tensor.detach(layer.weight).view(-1))  # type: ignore[arg-type]

    with gpuwm.empty_init():
        fresh = nn.Linear(2, 2)
    problems = refused(nn.Linear(2, 2), fresh, replay=[(fresh, hold)])
    assert len(problems) == 1
    assert "scratch: something that gpuwm can't see holds memory of weight" in problems[0]
    assert "16 bytes" in problems[0]
    assert all(parameter.is_meta for parameter in fresh.parameters())


def test_a_function_that_changes_the_structure() -> None:
    def grow(layer: Any) -> None:
        layer.child = nn.ReLU()
        layer.kernel = Kernel(numbers(2), 1)

    with gpuwm.empty_init():
        fresh = nn.Linear(2, 2)
    weight = fresh.weight
    problems = refused(nn.Linear(2, 2), fresh, replay=[(fresh, grow)])
    assert problems == [
        "module: child is a torch.nn.modules.activation.ReLU here, the version has none"
    ]
    assert fresh.weight is weight
    assert weight.is_meta
    assert not hasattr(fresh, "child")
    assert not hasattr(fresh, "kernel")


# ---- several processes -------------------------------------------------------------------------


def test_two_processes_that_publish_at_once() -> None:
    code = """if True:
        import sys, torch, gpuwm, gpuwm.image
        sys.stdin.readline()
        model = torch.nn.Linear(64, 64)
        try:
            gpuwm.image.publish(model, "race@v1")
            print("published")
        except gpuwm.Exists:
            model(torch.ones(1, 64))
            print("there")
    """
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    told = sorted(process.communicate(timeout=120)[0].strip() for process in started)
    assert told == ["published", "there"]
    gpuwm.image.install(nn.Linear(64, 64), "race@v1")


def test_post_processing_may_add_modules() -> None:
    def grow(layer: Any) -> None:
        layer.child = nn.Linear(2, 2)

    model = nn.Sequential(nn.Linear(2, 2))
    grow(model[0])
    with gpuwm.empty_init():
        fresh: Any = nn.Sequential(nn.Linear(2, 2))
    installed(model, fresh, replay=[(fresh[0], grow)])
    assert list(fresh[0].child._parameters) == ["weight", "bias"]


def test_ranks_are_parts() -> None:
    found: dict[int, Any] = {}
    announced = threading.Event()
    ids: list[str] = []

    def publish(rank: int) -> None:
        def announce(id_: str) -> None:
            ids.append(id_)
            announced.set()

        options: dict[str, Any] = {"announce": announce}
        if rank == 1:
            assert announced.wait(60)
            options = {"join": ids[0]}
        model = Holder(weight=numbers(4) + rank, rank=rank)
        found[rank] = gpuwm.image.publish(model, "ranks@v1", rank=rank, world=2, **options)

    threads = [threading.Thread(target=publish, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 1]
    for rank in range(2):
        fresh: Any = Holder()
        gpuwm.image.install(fresh, "ranks@v1", rank=rank)
        assert fresh.rank == rank
        assert torch.equal(fresh.weight, numbers(4) + rank)


def test_a_publish_that_fails_leaves_the_module_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded()
    before = gpuwm.image.describe(model)

    def fail(self: Making) -> Any:
        raise gpuwm.Cancelled("the publish was cancelled")

    monkeypatch.setattr(Making, "commit_attached", fail)
    with pytest.raises(gpuwm.Cancelled):
        gpuwm.image.publish(model, "fails@v1")
    assert gpuwm.image.differences(before, model) == []
    model.layers[0].weight.data.zero_()  # nothing is shared


def test_an_image_needs_nothing_of_its_publisher() -> None:
    run_python(
        """if True:
        import torch, gpuwm.image
        model = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(model.weight)
        gpuwm.image.publish(model, "outlives@v1")
        """
    )
    fresh = nn.Linear(3, 3)
    gpuwm.image.install(fresh, "outlives@v1")
    assert fresh.weight.sum() == 9
