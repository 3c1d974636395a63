"""A trainer, in a process of its own: what it publishes are the tensors of a checkpoint, changed as
a test says. Imports vLLM: only in the fork server."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import torch
from safetensors.torch import load_file
from torch._C import _len_torch_dispatch_stack

import gpuwm
import gpuwm.vllm
from gpuwm._publish.making import Making
from gpuwm.vllm import backends, layouts
from tests_engines import serving
from tests_engines.engines import Job

Tensors = dict[str, torch.Tensor]
SCALE = "model.layers.0.self_attn.o_proj.weight_scale"
NO_TENSOR: Any = 7
SMALL = 1024  # bytes: of these models the norms and scales have fewer
K_PROJ = "model.layers.1.self_attn.k_proj.weight"
DOWN = "model.layers.0.mlp.down_proj.weight"


def _set(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], None]:
    def act(tensors: Tensors) -> None:
        tensors[name] = change(tensors[name])

    return act


def _rename(tensors: Tensors) -> None:
    tensors["model.layers.1.self_attn.key.weight"] = tensors.pop(K_PROJ)


# What a test changes in a trainer's tensors.
CHANGES: dict[str, Callable[[Tensors], Any]] = {
    "part missing": lambda tensors: tensors.pop(K_PROJ),
    "norm missing": lambda tensors: tensors.pop("model.norm.weight"),
    "layer missing": lambda tensors: tensors.pop(DOWN),
    "all missing": lambda tensors: tensors.clear(),
    "scale missing": lambda tensors: tensors.pop(SCALE),
    "other name": _rename,
    "too large": _set(K_PROJ, lambda tensor: torch.cat([tensor, tensor])),
    "too small": _set(K_PROJ, lambda tensor: tensor[:-1]),
    "turned": _set(DOWN, lambda tensor: tensor.t().contiguous()),
    "integers": _set(K_PROJ, lambda tensor: tensor.to(torch.int8)),
    "float32": lambda tensors: tensors.update((n, t.float()) for n, t in tensors.items()),
    "gradients": lambda tensors: tensors.update(
        (name, torch.nn.Parameter(tensor)) for name, tensor in tensors.items()
    ),
    "no tensor": lambda tensors: tensors.update({K_PROJ: NO_TENSOR}),
    "no memory": _set(K_PROJ, lambda tensor: tensor.to("meta")),
}


class Trainer:
    def __init__(self, checkpoints: pathlib.Path) -> None:
        self._checkpoints = checkpoints
        self.publisher: Any = None

    def open(self, name: str, kind: str, small: int = SMALL, **options: Any) -> None:
        """small: which parameters are too small to be placed."""
        layouts.SMALL_BYTES = small
        options = {"dtype": "bfloat16", "enforce_eager": True, "max_model_len": 64, **options}
        model = str(self._checkpoints / kind)
        self.publisher = gpuwm.vllm.publisher(
            name, model=model, skip_tokenizer_init=True, **options
        )

    def publish(
        self, tag: str, kind: str, change: str = "", how: str = "mapping", alias: str | None = None
    ) -> dict[str, Any]:
        """how: "mapping", "pairs" (a list), "generator", "function", "stops" (it stops itself
        when half of the tensors are given) or "fails" (it raises then)."""
        tensors = load_file(self._checkpoints / kind / "model.safetensors")
        if change:
            CHANGES[change](tensors)
        before = {name: str(tensor) for name, tensor in tensors.items()}
        found = self.publisher.publish(tag, _given(tensors, how), alias=alias)
        assert {name: str(tensor) for name, tensor in tensors.items()} == before
        return {
            "version": found.version,
            "id": found.id,
            "bytes": found.bytes,
            "copied": found.copied,
            "ignored": found.ignored,
        }

    def choose_other_kernels(self) -> None:
        """As on a machine where vLLM's layers choose others, though all settings are equal."""
        real = backends.backends
        backends.backends = lambda model: {**real(model), "backends.linear": "Other x 9"}

    def stop_after_a_commit(self) -> None:
        """The process stops itself (SIGSTOP) after its next commit of a part."""
        real = Making.commit

        def commit(making: Making) -> Any:
            found = real(making)
            os.kill(os.getpid(), signal.SIGSTOP)
            return found

        Making.commit = commit  # type: ignore[assignment,method-assign]

    def join_group(self, path: str) -> None:
        """As trainers that shard do."""
        torch.distributed.init_process_group("gloo", f"file://{path}", rank=0, world_size=1)

    def group_size(self) -> int:
        """After a collective operation."""
        tensor = torch.ones(1)
        torch.distributed.all_reduce(tensor)
        return int(tensor.item())

    def close(self) -> None:
        self.publisher.close()

    def usage(self) -> dict[str, int]:
        """Of this process: descriptors, mappings of gpuwm's memory, modules, groups of vLLM's."""
        maps = pathlib.Path("/proc/self/maps").read_text()  # before what is garbage goes
        gc.collect()
        from vllm.distributed import parallel_state

        return {
            "descriptors": len(os.listdir("/proc/self/fd")),
            "mappings": sum("/memfd:" in line for line in maps.splitlines()),
            "modules": sum(isinstance(each, torch.nn.Module) for each in gc.get_objects()),
            "groups": sum(
                isinstance(value, parallel_state.GroupCoordinator)
                for value in vars(parallel_state).values()
            ),
        }


def _given(tensors: Tensors, how: str) -> Any:
    hows: dict[str, Callable[[], Any]] = {
        "mapping": lambda: tensors,
        "pairs": lambda: list(tensors.items()),
        "generator": lambda: iter(tensors.items()),
        "function": lambda: lambda: iter(tensors.items()),
        "stops": lambda: _halfway(tensors, lambda: os.kill(os.getpid(), signal.SIGSTOP)),
        "fails": lambda: _halfway(tensors, _fail),
        "looks": lambda: _halfway(tensors, _look),
        "number": lambda: 7,
        "twice": lambda: [*tensors.items(), *tensors.items()],
    }
    return hows[how]()


def _halfway(tensors: Tensors, act: Callable[[], object]) -> Iterator[tuple[str, torch.Tensor]]:
    pairs = list(tensors.items())
    yield from pairs[: len(pairs) // 2]
    act()
    yield from pairs[len(pairs) // 2 :]


def _look() -> None:
    """The trainer's own code computes as it does outside of a publish."""
    assert torch.tensor(1.0).dtype == torch.float32
    assert _len_torch_dispatch_stack() == 0


def _fail() -> None:
    raise KeyError("the test's trainer is broken")


def serve(pipe: Connection, log: str, job: Job) -> None:
    """Answers names of methods of `Trainer`, with arguments: ("done", what it gave) or ("failed",
    the error's class, its text)."""
    serving.begin(log, job)
    trainer = Trainer(pathlib.Path(job.arguments["checkpoints"]))
    gc.disable()  # garbage goes where a test wants it to
    pipe.send(("loaded", ""))
    while True:
        try:
            method, arguments, named = pipe.recv()
        except EOFError:
            break
        try:
            pipe.send(("done", getattr(trainer, method)(*arguments, **named)))
        except Exception as error:
            traceback.print_exc()
            pipe.send(("failed", type(error).__name__, str(error)))
        sys.stdout.flush()
        sys.stderr.flush()
    serving.end()
