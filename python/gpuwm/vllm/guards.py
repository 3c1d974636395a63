"""Functions of vLLM that write into the weights of a model that is loaded, or take them off it.

Weights of load format gpuwm are shared and read-only: a write into them ends the process, and a
model whose weights were taken off can't compute. So each of these functions gets a guard. For a
model in gpuwm's memory the guard raises Unsupported before anything has changed. For any other
model the function does what it always did.

Some writers need no guard, since an option turns them on, and `refusals` names it: other backends
of weight transfer, EPLB and elastic expert parallelism, weights that sleep mode preserves. LoRA
adapters lie beside the weights.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import errors
from . import releases

if TYPE_CHECKING:
    from torch.nn import Module

log: logging.Logger = logging.getLogger("vllm.gpuwm")

# The functions by their full names. Of a row, the first counts whose module vLLM has; it must be
# there. A row without such a module belongs to other releases.
GUARDED = (
    # all updates in a checkpoint's format: it takes the weights off the layers
    ("vllm.model_executor.model_loader.reload.layerwise.initialize_layerwise_reload",),
    # also copies weights that are processed already; it has a module of its own since 0.32
    (
        "vllm.model_executor.model_loader.reload.inplace.reload_weights",
        "vllm.v1.worker.gpu_model_runner.GPUModelRunner.reload_weights",
    ),
    ("vllm.v1.worker.gpu_worker.Worker.reload_weights",),
    ("vllm.model_executor.model_loader.weight_checksum.zero_weights",),  # 0.32
)
# Methods of vLLM's worker, as far as a release has them, whose names say that they are about
# weights, and why none of them writes into weights that gpuwm holds.
WEIGHT_METHODS = {
    "reload_weights": "it is guarded",
    "reset_weights": "it calls zero_weights, which is guarded",
    "compute_weight_checksums": "it reads",
    "init_weight_transfer_engine": "the backend of weight transfer is gpuwm's",
    "shutdown_weight_transfer_engine": "the backend of weight transfer is gpuwm's",
    "start_weight_update": "the backend of weight transfer is gpuwm's",
    "start_draft_weight_update": "gpuwm's backend says that it can't",
    "update_weights": "the backend of weight transfer is gpuwm's",
    "finish_weight_update": "the backend of weight transfer is gpuwm's",
    "supports_draft_weight_updates": "it asks the backend",
}
_WORKER = "vllm.v1.worker.gpu_worker.Worker"
_MARK = "_gpuwm_guard"
# The models in gpuwm's memory.
_watched: weakref.WeakSet[Module] = weakref.WeakSet()

REMEDY = (
    "nothing has changed. To move a running engine to other weights, publish them as a version and "
    "call gpuwm.vllm.switch, or use the weight transfer backend gpuwm. To write into weights, or "
    "for vllm snapshot, start the engine without --load-format gpuwm"
)


def refused(what: str) -> errors.Unsupported:
    return errors.Unsupported(
        f"{what} would write into this engine's weights, which other engines use, and which are "
        "read-only (load format gpuwm)",
        REMEDY,
    )


def check() -> None:
    """Puts a guard on each function, once, and looks whether all of them are in force. Raises
    Unsupported if a function is not where it was in the releases that gpuwm knows, or if vLLM's
    worker has a method about weights that gpuwm does not know."""
    problems = [f"it has no {name}" for name in map(_guard, _present()) if name]
    worker, _ = releases.resolve(_WORKER)
    problems += [
        f"its worker has {name}, which may write into weights"
        for name in dir(worker)
        if "weight" in name and not name.startswith(("_", "gpu")) and name not in WEIGHT_METHODS
        if inspect.isroutine(getattr(worker, name))
    ]
    if problems:
        raise releases.unsupported("load format gpuwm", problems)


def watch(model: Module) -> None:
    """From now on the guards refuse what would write into this model, which gpuwm's loader has
    loaded. Its method `load_weights` gets a guard too: trainers call it from extensions of the
    worker."""
    _watched.add(model)
    kind: Any = type(model)
    load = getattr(kind, "load_weights", None)
    if load is not None and not hasattr(load, _MARK):
        kind.load_weights = _guarded(load, f"{kind.__name__}.load_weights")


def _present() -> list[str]:
    """The functions that this vLLM must have."""
    found = []
    for row in GUARDED:
        there = [name for name in row if _has_module(name)]
        found += there[:1]
    return found


def _has_module(name: str) -> bool:
    path = name.rpartition(".")[0]
    if path.rpartition(".")[2][:1].isupper():  # a class
        path = path.rpartition(".")[0]
    try:
        return importlib.util.find_spec(path) is not None
    except ImportError:  # the folder above it is not there
        return False


def _guard(name: str) -> str:
    """Guards a function. Returns its name if it is not there, or an empty text."""
    function, owner = releases.resolve(name)
    if function is None:
        return name
    if hasattr(function, _MARK):
        return ""
    attribute = name.rpartition(".")[2]
    guarded = _guarded(function, attribute)
    setattr(owner, attribute, guarded)
    if inspect.ismodule(owner):
        _replace_imported(function, guarded)
    return ""


def _replace_imported(function: Any, guarded: Any) -> None:
    """Replaces a function in the modules of vLLM that have imported it by its name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("vllm."):
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, guarded)


def _guarded(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def guard(*arguments: Any, **named: Any) -> Any:
        worker = arguments[0] if arguments and hasattr(arguments[0], "get_model") else None
        candidates = (*arguments, *named.values()) if worker is None else (worker.get_model(),)
        if not any(_is_watched(each) for each in candidates):
            return function(*arguments, **named)
        if worker is not None and not _is_last(worker):
            log.warning("gpuwm: %s is refused, and the last rank tells it", what)
            return None
        raise refused(what)

    setattr(guard, _MARK, what)
    return guard


def _is_watched(value: Any) -> bool:
    return any(value is model for model in _watched)


def _is_last(worker: Any) -> bool:
    """Whether this rank tells of an error of all ranks: see gpuwm.vllm.transfer."""
    parallel = worker.vllm_config.parallel_config
    return bool(parallel.rank == parallel.world_size - 1)
