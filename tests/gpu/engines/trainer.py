"""A trainer: it has the tensors of checkpoints in GPU memory, and publishes them as versions.

It imports torch and vLLM, and then takes its options, the JSON of engine.Options, from the first
line of its stdin: `training` are the checkpoints' folders, `llm` the arguments of the engines.
It prints lines "@ JSON" among vLLM's log:
    ready       it waits for its options
    started     seconds of each step
    published   a version, its bytes, how many of them were copied after loading, and seconds
    sent        vLLM's own weight transfer has the handles of all tensors, in a file
and obeys further lines: "publish TAG NUMBER" (of the folder), "send FILE NUMBER" (vLLM's IPC, until
the line "received"), "die TAG NUMBER" (it kills itself when half of the tensors are given)."""

from __future__ import annotations

import itertools
import os
import pathlib
import pickle
import signal
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

from engine import Options, imports, memory, take_options, tell

# Of an engine's arguments: what says nothing about weights, and where it takes them from.
NOT_OF_A_TRAINER = ("load_format", "model_loader_extra_config", "worker_cls")
Tensors = dict[str, Any]


def read(folders: list[str]) -> list[Tensors]:
    """The tensors of each checkpoint on the GPU. Equal ones are there once."""
    import torch
    from safetensors.torch import load_file

    found: list[Tensors] = []
    for folder in folders:
        tensors: Tensors = {}
        for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
            tensors |= load_file(path, device="cuda")
        if found:
            first = found[0]
            for name, tensor in tensors.items():
                if torch.equal(tensor, first[name]):
                    tensors[name] = first[name]
        found.append(tensors)
    torch.cuda.empty_cache()
    return found


def make_publisher(options: Options) -> Any:
    import gpuwm.vllm

    arguments = {name: value for name, value in options.llm.items() if name not in NOT_OF_A_TRAINER}
    ref = options.llm["model_loader_extra_config"]["ref"]
    return gpuwm.vllm.publisher(ref.partition("@")[0], like=ref, **arguments)


def publish(publisher: Any, tag: str, tensors: Any) -> None:
    begin = time.perf_counter()
    found = publisher.publish(tag, tensors, alias="prod")
    tell(
        "published",
        version=found.version,
        bytes=found.bytes,
        copied=found.copied,
        ignored=found.ignored,
        seconds={**found.seconds, "in all": time.perf_counter() - begin},
        memory=memory(),
    )


def until_dead(tensors: Tensors) -> Iterator[tuple[str, Any]]:
    yield from itertools.islice(tensors.items(), len(tensors) // 2)
    os.kill(os.getpid(), signal.SIGKILL)


def send(path: pathlib.Path, tensors: Tensors) -> None:
    """vLLM's own: an engine opens the handles and copies. They are valid until "received"."""
    import base64

    need_no_ray()
    from vllm.distributed.weight_transfer.ipc_engine import IPCWeightTransferEngine

    begin = time.perf_counter()

    def hand_over(update: Any) -> None:
        info = {
            "names": update.names,
            "dtype_names": update.dtype_names,
            "shapes": update.shapes,
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(update.ipc_handles)).decode(),
        }
        path.write_bytes(pickle.dumps(info))
        tell("sent", tensors=len(update.names), seconds={"handles": time.perf_counter() - begin})
        line = sys.stdin.readline().strip()
        if line != "received":
            raise ValueError(f"the trainer waits for 'received', and got {line!r}")

    IPCWeightTransferEngine.trainer_send_weights(iter(tensors.items()), {"send_mode": hand_over})


def need_no_ray() -> None:
    """vLLM's IPC backend imports ray and requests, for transports that are not used here."""
    for name in ("ray", "requests"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)


def obey(publisher: Any, checkpoints: list[Tensors], line: str) -> None:
    what, where, number = line.split()
    tensors = checkpoints[int(number)]
    if what == "publish":
        publish(publisher, where, tensors)
    elif what == "die":
        publish(publisher, where, until_dead(tensors))
    elif what == "send":
        send(pathlib.Path(where), tensors)
    else:
        raise ValueError(f"trainer.py knows 'publish', 'die' and 'send', not {line!r}")


def main() -> None:
    times = imports()
    options = take_options()
    begin = time.perf_counter()
    checkpoints = read(options.training)
    times["tensors"] = time.perf_counter() - begin
    begin = time.perf_counter()
    with make_publisher(options) as publisher:
        times["publisher()"] = time.perf_counter() - begin
        tell("started", seconds=times, memory=memory())
        for line in iter(sys.stdin.readline, ""):
            obey(publisher, checkpoints, line)
    tell("ending")


if __name__ == "__main__":
    main()
