"""Loaders of safetensors files beside gpuwm, each used as its documentation calls it fastest.

    loaders.py NAME DEVICE FILE...

gpuwm.compare starts one such process a loader, by the file's path: gpuwm is imported for its own
rows alone. It answers with a line of JSON when its modules are imported and, on a GPU, its context
is there; then it reads commands, one a line, and answers each: "load", "load REF" (gpuwm.attach),
"touch", "sums", "hand", "drop". Times are those of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import sys
import time
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

TOUCH_BYTES = 16 << 20  # copied at a time, into the same memory
PINNED_BYTES = 1 << 30  # what the ceiling copies at a time
HAND_OVER_S = 120

Tensors = dict[str, Any]
Load = Callable[[Any, list[str], str, str], Tensors]


class Peer(NamedTuple):
    """label: as the table has it. module: what the load imports besides torch. load: (torch, files,
    torch's device, reference) -> tensors by name. environment: set before its process starts.
    cpu: whether it loads to the CPU too. package: what `distribution` says,
    if that is not the module's name."""

    label: str
    module: str
    load: Load
    environment: Mapping[str, str] = types.MappingProxyType({})
    cpu: bool = False
    package: str = ""

    def distribution(self) -> str:
        """Its name on the package index."""
        return self.package or self.module.split(".")[0]


# ---- safetensors ----


def load_file(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    from safetensors.torch import load_file as load

    tensors = {}
    for path in files:
        tensors.update(load(path, device=device))
    return tensors


def safe_open(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    from safetensors import safe_open as opened

    tensors = {}
    for path in files:
        with opened(path, framework="pt", device=device) as file:
            for name in file.keys():  # noqa: SIM118, it can't be iterated
                tensors[name] = file.get_tensor(name)
    return tensors


# ---- fastsafetensors ----

# Its reader with its pinned buffers: a process that loads again has it already.
_kept: dict[str, Any] = {}
# What a load chose by itself, for the table.
_chosen = {"note": ""}


def fastsafetensors(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    from fastsafetensors import SafeTensorsFileLoader

    loader = _kept.get(device)
    if loader is None:
        # GPUDirect Storage reads the disk, never the page cache.
        loader = _kept[device] = SafeTensorsFileLoader(None, device, nogds=True)
    loader.reset()
    loader.add_filenames({0: files})
    buffers = loader.copy_files_to_device()
    # The tensors own the memory together: it outlives the buffers' object.
    tensors = {name: buffers.get_tensor(name) for name in loader.get_keys()}
    buffers.close()
    return tensors


# ---- Run:ai model streamer ----


def runai(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files, device=device)
        if device == "cpu":  # what it yields there lies in its own buffer
            return {name: tensor.clone() for name, tensor in streamer.get_tensors()}
        return dict(streamer.get_tensors())


# ---- InstantTensor ----


def instanttensor(backend: str | None) -> Load:
    def load(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
        from instanttensor import Backend, BackendPolicy, safe_open

        chosen = {None: None, "BUFFERED": BackendPolicy.BUFFERED, "MMAP": Backend.MMAP}[backend]
        # All files in one call, as its documentation advises; tensors own their memory.
        with safe_open(list(files), framework="pt", device=device, backend=chosen) as file:
            _chosen["note"] = file.backend.name
            return dict(file.tensors())

    return load


# Keeps its pinned buffers, for processes that load again.
KEEP_PINNED = {"INSTANTTENSOR_CACHE_BUFFER": "1"}


# ---- transformers ----


def transformers(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    """A whole model, with the loader and the settings that transformers has by default."""
    import transformers as library

    folder = os.path.dirname(files[0])
    config = library.AutoConfig.from_pretrained(folder)
    kinds = config.architectures or []
    whole = (
        library.AutoModelForCausalLM
        if any(kind.endswith("ForCausalLM") for kind in kinds)
        else library.AutoModel
    )
    model = whole.from_pretrained(
        folder, dtype="auto", device_map=device if device != "cpu" else None
    )
    return dict(model.state_dict())


# ---- what the others are measured by ----


def ceiling(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    """As many bytes as the files have, from pinned memory: what the link gives."""
    size = sum(os.path.getsize(path) for path in files)
    if not _kept:
        bytes_ = min(PINNED_BYTES, size)
        _kept["from"] = torch.ones(bytes_, dtype=torch.uint8, pin_memory=True)
        _kept["to"] = torch.empty(bytes_, dtype=torch.uint8, device=device)
        return ceiling(torch, files, device, ref)
    done = 0
    while done < size:
        count = min(PINNED_BYTES, size - done)
        _kept["to"][:count].copy_(_kept["from"][:count], non_blocking=True)
        done += count
    return {}


def attach(torch: Any, files: list[str], device: str, ref: str) -> Tensors:
    """A version that is there. Its tensors are made for torch too."""
    import gpuwm

    return gpuwm.attach(ref, device="host" if device == "cpu" else device).state_dict()


PEERS = {
    "load_file": Peer("safetensors.torch.load_file", "safetensors.torch", load_file, cpu=True),
    "safe_open": Peer("safetensors.safe_open", "safetensors", safe_open, cpu=True),
    "fastsafetensors": Peer(
        "fastsafetensors, through the page cache",
        "fastsafetensors",
        fastsafetensors,
        {"FASTSAFETENSORS_ODIRECT": "0"},
        cpu=True,
    ),
    "fastsafetensors-direct": Peer(
        "fastsafetensors, its default: direct reads", "fastsafetensors", fastsafetensors, cpu=True
    ),
    "runai": Peer(
        "Run:ai model streamer",
        "runai_model_streamer",
        runai,
        {"RUNAI_STREAMER_LOG_LEVEL": "WARNING"},
        cpu=True,
        package="runai-model-streamer",
    ),
    "instanttensor": Peer(
        "InstantTensor, its default: direct reads",
        "instanttensor",
        instanttensor(None),
        KEEP_PINNED,
    ),
    "instanttensor-buffered": Peer(
        "InstantTensor, BackendPolicy.BUFFERED",
        "instanttensor",
        instanttensor("BUFFERED"),
        KEEP_PINNED,
    ),
    "instanttensor-mmap": Peer(
        "InstantTensor, Backend.MMAP", "instanttensor", instanttensor("MMAP"), KEEP_PINNED
    ),
}
# These are no loaders: gpuwm.compare starts each of them by its name.
OTHERS = {
    "ceiling": Peer("pinned memory to the GPU: the ceiling", "torch", ceiling),
    "attach": Peer("gpuwm.attach, weights there", "gpuwm", attach, cpu=True),
    # It makes a model, whose tensors may be others than those of the files.
    "transformers": Peer("transformers, from_pretrained", "transformers", transformers, cpu=True),
}


# ---- torch's hand-over ----


def receive(torch_queue: Any, answers: Any) -> None:
    """What gets the tensors, ready before they are sent; tells when it has touched each of them."""
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    answers.put("ready")
    tensors = torch_queue.get()
    for tensor in tensors.values():
        tensor.view(-1)[:1].clone()
    torch.cuda.synchronize()
    answers.put(time.monotonic())
    del tensors
    torch_queue.get()


def hand_over(torch: Any, tensors: Tensors) -> float:
    """Seconds from sending all tensors to another process until that has touched each of them."""
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    receiver = context.Process(target=receive, args=(queue, answers))
    receiver.start()
    answers.get(timeout=HAND_OVER_S)
    begin = time.monotonic()
    queue.put(tensors)
    took: float = answers.get(timeout=HAND_OVER_S) - begin
    queue.put(None)
    receiver.join()
    return took


# ---- the process ----


def sums(torch: Any, tensors: Tensors) -> str:
    """A digest of names, dtypes, shapes and the sums of all bytes: equal for equal tensors."""
    rows = []
    for name, tensor in sorted(tensors.items()):
        added = tensor.contiguous().view(-1).view(torch.uint8).sum(dtype=torch.int64).item()
        rows.append(f"{name} {tensor.dtype} {tuple(tensor.shape)} {added}")
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def touch(torch: Any, tensors: Tensors, device: str) -> int:
    """Reads every byte once, at the speed of a copy, whatever its alignment. Returns their
    number."""
    scratch = torch.empty(TOUCH_BYTES, dtype=torch.uint8, device=device)
    done: int = 0
    for tensor in tensors.values():
        flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
        for begin in range(0, flat.numel(), TOUCH_BYTES):
            part = flat[begin : begin + TOUCH_BYTES]
            scratch[: part.numel()].copy_(part)
            done += part.numel()
    return done


def synchronize(torch: Any, device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def obey(
    torch: Any,
    peer: Peer,
    device: str,
    files: list[str],
    commands: Iterable[str],
    say: Callable[..., None],
) -> None:
    tensors: Tensors = {}
    for line in commands:
        command, _, ref = line.strip().partition(" ")
        if command == "load":
            begin = time.monotonic()
            tensors = peer.load(torch, files, device, ref)
            synchronize(torch, device)
            say(began=begin, ended=time.monotonic(), **_chosen)
        elif command == "touch":
            touched = touch(torch, tensors, device)
            synchronize(torch, device)
            say(ended=time.monotonic(), bytes=touched)
        elif command == "sums":
            say(sums=sums(torch, tensors))
        elif command == "hand":
            say(seconds=hand_over(torch, tensors))
        elif command == "drop":
            tensors.clear()
            synchronize(torch, device)
            if device != "cpu":
                torch.cuda.empty_cache()
            say()


def main() -> None:
    # What libraries print goes to stderr: answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    name, device, *files = sys.argv[1:]
    peer = {**PEERS, **OTHERS}[name]

    import torch

    importlib.import_module(peer.module)
    imported = time.monotonic()
    if device != "cpu":
        torch.zeros(1, device=device)
        torch.cuda.synchronize()

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=answers)

    say(imported=imported, ready=time.monotonic())
    obey(torch, peer, device, files, sys.stdin, say)


if __name__ == "__main__":
    main()
