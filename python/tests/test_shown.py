"""What notebooks and prompts show of objects."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Daemon, Tensors, by_torch, on_host
from torch import nn

import gpuwm
import gpuwm.builders
import gpuwm.image
import gpuwm.transport
from gpuwm._client import Job

PUBLIC = (gpuwm, gpuwm.image, gpuwm.builders, gpuwm.transport)
ONES = np.ones(4, np.float32)
# Python's own representation ends with an address.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def classes_of_the_package() -> dict[str, type]:
    """By name. A name that begins with _ is nobody's to see. Where two modules have a class of one
    name, it is the public one."""
    for name in ("gpuwm._handles", "gpuwm.vllm.trainer"):
        importlib.import_module(name)
    found = {
        name: each
        for module in [m for n, m in sys.modules.items() if n.split(".")[0] == "gpuwm"]
        for name, each in vars(module).items()
        if inspect.isclass(each) and each.__module__ == module.__name__ and name[0] != "_"
    }
    public = {name: getattr(module, name) for module in PUBLIC for name in module.__all__}
    return found | {name: each for name, each in public.items() if inspect.isclass(each)}


def returned(value: Any) -> Iterator[str]:
    """The types that a function, or a public method or property of a class, returns."""
    if inspect.isclass(value):
        for base in value.__mro__:
            for name, member in vars(base).items():
                if name[0] != "_" or name in ("__getitem__", "__iter__", "__call__"):
                    yield from returned(member)
        declared = vars(value).get("__annotations__", {})
        yield from (str(kind) for name, kind in declared.items() if name[0] != "_")
    elif isinstance(value, property):
        yield from returned(value.fget)
    elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
        yield str(getattr(value, "__annotations__", {}).get("return", ""))


def test_every_public_class_has_a_representation() -> None:
    """Also those that only calls of public ones give."""
    known = classes_of_the_package()
    found: set[type] = set()
    left = [getattr(module, name) for module in PUBLIC for name in module.__all__]
    while left:
        each = left.pop()
        if inspect.isclass(each) and each.__module__.split(".")[0] == "gpuwm":
            found.add(each)
        words = {word for text in returned(each) for word in re.findall(r"\w+", text)}
        left += [known[word] for word in words & known.keys() if known[word] not in found]
        found |= {known[word] for word in words & known.keys()}
    assert {"Held", "Filling", "Files", "Slice", "Handles"} <= {each.__name__ for each in found}
    abstract = {each for each in found if getattr(each, "_is_protocol", False)}
    pythons: Any = object.__repr__
    assert [each for each in found - abstract if each.__repr__ is pythons] == []


def shown(value: object) -> str:
    text = repr(value)
    assert not ADDRESS.search(text)
    return text


def test_a_client_and_its_jobs(daemon: Daemon) -> None:
    client = gpuwm.connect()
    assert shown(client) == f"<gpuwm.Client on {daemon.socket}>"
    assert shown(daemon.admin) == f"<gpuwm.Client admin on {daemon.socket}>"
    client.close()
    assert shown(client) == f"<gpuwm.Client on {daemon.socket}, closed>"
    job = Job(4, client, "load", "llama@v4")
    assert shown(job) == "<gpuwm.Job 4: load llama@v4>"
    assert (str(job), f"{job}", job + 1) == ("4", "4", 5)


def test_what_an_alias_named(daemon: Daemon, checkpoint: Callable[[Tensors], str]) -> None:
    model = checkpoint({"a": ONES}).partition("@")[0]
    checkpoint({"a": ONES})
    daemon.admin.set_alias(model, "prod", "v1")
    old = daemon.admin.set_alias(model, "prod", "v2")
    assert old is not None
    assert shown(old) == f"Replaced({str(old)!r}, kept=None)"


@by_torch
def test_a_version(daemon: Daemon, checkpoint: Callable[..., str]) -> None:
    ref = checkpoint({"a": ONES, "b": ONES}, {"config.json": b"{}"})
    w = gpuwm.attach(ref)
    assert shown(w) == f"<gpuwm.Mapping {ref} on {daemon.device}: 2 tensors>"
    files = w.files
    assert shown(files) == "<gpuwm.Files: config.json (2 bytes)>"
    assert shown(w["a"]) == f"<gpuwm.Tensor a: F32 [4] on {daemon.device}>"
    assert shown(w.get_slice("a")) == f"<gpuwm.Slice of {w['a']!r}>"
    assert shown(w.ref("a")).startswith("Ref(socket=")
    assert str(w.version) == ref
    assert shown(gpuwm.attach(ref, copy=True)) == f"<gpuwm.Copies of {ref}: 2 tensors, 32 bytes>"
    w.close()
    assert shown(w) == "<gpuwm.Mapping, closed>"
    assert shown(files) == "<gpuwm.Files: the mapping was closed>"


@on_host
def test_a_child_shows_what_it_inherited(checkpoint: Callable[[Tensors], str]) -> None:
    ref = checkpoint({"a": ONES})
    w = gpuwm.attach(ref)
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(write, f"{w!r}\n{w.files!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        mapping, files = told.read().split("\n")
    made = "made before a fork, by the parent process"
    assert mapping == f"<gpuwm.Mapping {ref} on host: {made}>"
    assert files.startswith(f"<gpuwm.Files: this was {made}")
    os.waitpid(pid, 0)


@pytest.mark.usefixtures("daemon")
def test_events() -> None:
    events = gpuwm.events()
    assert shown(events) == "<gpuwm.Events, not open yet>"
    with events:
        assert shown(events) == "<gpuwm.Events, open>"
    assert shown(events) == "<gpuwm.Events, closed>"
    assert shown(gpuwm.events(after=3)) == "<gpuwm.Events after event 3, not open yet>"


@by_torch
def test_memory_that_processes_share(daemon: Daemon) -> None:
    on = daemon.device
    with gpuwm.Pool(1 << 20, device=on) as pool:
        assert shown(pool) == f"<gpuwm.Pool {pool.id} on {on}: 1,048,576 bytes>"
        room = pool.empty((2, 3), "float32")
        assert shown(room) == f"<gpuwm.Filling float32 [2, 3] in the pool {pool.id}>"
        room.discard()
        assert shown(room).endswith(", offered or given back>")
        told = shown(pool.put(torch.ones(2), others=1))
        assert told == f"<gpuwm.TensorRef float32 [2] on {on}, mode pool>"
    assert shown(pool).endswith(": 1,048,576 bytes, closed>")
    with gpuwm.Queue(8) as queue:
        assert shown(queue) == f"<gpuwm.Queue {queue.id} on host: 8 items>"
    with gpuwm.Scratch.create("shown", device=on, bytes=4096) as scratch:
        assert shown(scratch) == f"<gpuwm.Scratch shown on {on}: {scratch.nbytes:,} bytes>"


def test_blocks(daemon: Daemon) -> None:
    with gpuwm.Blocks.open_or_create(
        "shown-blocks", device=daemon.device, blocks=4, block_bytes=4096
    ) as blocks:
        assert shown(blocks).endswith(": 4 blocks of 4,096 bytes>")
        reserved = blocks.reserve([bytes(24)])
        assert shown(reserved) == "<gpuwm.Reserved: 1 blocks of the block cache shown-blocks>"
        reserved.publish()
        with blocks.hold([bytes(24)]) as held:
            assert shown(held) == "<gpuwm.Held: 1 blocks of the block cache shown-blocks>"
        assert shown(held).endswith(", given back>")


@by_torch
def test_what_binding_did_is_short(checkpoint: Callable[[Tensors], str]) -> None:
    """Of a model with hundreds of names, a line says what kind they are, and how many."""
    layers = 300
    w = gpuwm.attach(checkpoint({f"{n}.bias": ONES for n in range(layers)}))
    with gpuwm.empty_init():
        model = nn.Sequential(*(Biased() for _ in range(layers)))
    told = shown(w.bind(model))
    assert told.startswith("BindResult(shared=[0.bias, 1.bias, 2.bias, 3.bias, and 296 more], ")
    assert told.endswith("private=[], missing=[], unexpected=[], tied=[], views=[])")
    assert shown(w.check(model)).startswith("CheckResult(shared=[0.bias, ")
    assert len(shown(gpuwm.image.describe(model))) < 300


class Biased(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(4))


def test_versions_are_a_table(daemon: Daemon, checkpoint: Callable[[Tensors], str]) -> None:
    ref = checkpoint({"a": ONES})
    model = ref.partition("@")[0]
    daemon.admin.set_alias(model, "prod", "v1")
    told = daemon.admin.list(model)._repr_html_()
    ref_cell, aliases, *cells = re.findall("<td>(.*?)</td>", told)
    assert (ref_cell, sorted(aliases.split(", "))) == (ref, ["current", "prod"])
    assert cells[:2] == ["ready", daemon.device]
    assert told.count("<tr>") == 2
    version = gpuwm.attach(ref).version
    assert f"<td>{ref}</td><td>{version.id}</td>" in version._repr_html_()


def test_tables_are_escaped() -> None:
    """A publisher chooses names and texts, and a notebook runs the scripts of what it shows."""
    row = {
        "model": "<script>",
        "tag": "&",
        "version": "1",
        "state": "failed",
        "leases": 0,
        "bytes": 1 << 20,
        "tensors": 1,
        "parts": [{"device": "<b>"}],
        "error": {"message": "no <img>"},
    }
    told = gpuwm.Listing(versions=[row], aliases=[{"version": "1", "alias": "<i>"}])
    html = told._repr_html_()
    assert not re.search("<(script|b|i|img)>", html)
    assert "<td>&lt;script&gt;@&amp;</td><td>&lt;i&gt;</td><td>failed: no &lt;img&gt;</td>" in html
    assert "<td>1,048,576</td>" in html
