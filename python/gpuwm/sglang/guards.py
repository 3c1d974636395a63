"""Keeps SGLang from writing into weights that other processes share.

SGLang has requests that write into the weights of a running engine: a trainer's updates, new
weights from disk, a test that overwrites weights. The functions behind these requests have other
names in other releases. So an engine that loads with this format puts guards in front of them
before it maps anything (`install`). If this SGLang has a function that gpuwm does not know, or
lacks one that gpuwm knows, the load is refused. A class that gpuwm does not know may still give
weights to the model: the model's own `load_weights` has a guard too (`close`). An engine that loads
with another format keeps SGLang's own functions.

Each guard gets the function in front of which it stands, and that function's arguments.
"""

from __future__ import annotations

import functools
import importlib.metadata
import pkgutil
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from . import loaded

if TYPE_CHECKING:
    from torch.nn import Module

Guard = Callable[..., Any]


def update(original: Callable[..., Any], updater: Any, *args: Any, **named: Any) -> Any:
    """Returns the text with which SGLang answers the request. The engine goes on with its
    weights."""
    refusal = _refusal(updater.get_model())
    return original(updater, *args, **named) if refusal is None else (False, refusal)


def session(original: Callable[..., Any], updater: Any, *args: Any, **named: Any) -> Any:
    """Raises Unsupported: SGLang does not look at what a step of a session returns. `begin` lets no
    session begin, so SGLang does not call these steps."""
    refusal = _refusal(updater.get_model())
    if refusal is not None:
        raise errors.Unsupported(refusal)
    return original(updater, *args, **named)


def process(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Raises Unsupported if any model of this process is shared: the function does not say which
    model it writes into."""
    refusal = _refusal()
    if refusal is not None:
        raise errors.Unsupported(refusal)
    return original(*args, **named)


def load(original: Callable[..., Any], model: Any, *args: Any, **named: Any) -> Any:
    """Raises Unsupported, whoever gives the model its weights."""
    refusal = _refusal(model)
    if refusal is not None:
        raise errors.Unsupported(refusal)
    return original(model, *args, **named)


def begin(original: Callable[..., Any], manager: Any, request: Any) -> Any:
    """Returns the answer of a session that did not begin, if a model of this process is shared."""
    refusal = _refusal()
    if refusal is None:
        return original(manager, request)
    from sglang.srt.managers.io_struct import BeginWeightUpdateReqOutput

    return BeginWeightUpdateReqOutput(success=False, message=refusal)


_READING_ACTIONS = frozenset({"snapshot", "compare", "checksum"})


def check(original: Callable[..., Any], checker: Any, action: str, *args: Any, **named: Any) -> Any:
    """Raises Unsupported if the action writes ("reset_tensors") or is not known. SGLang answers the
    request with the error's text."""
    refusal = _refusal()
    if refusal is not None and action not in _READING_ACTIONS:
        raise errors.Unsupported(refusal)
    return original(checker, action, *args, **named)


def _refusal(*models: Any) -> str | None:
    """Why these models are not written into, or None if they are in memory of this engine alone.
    Without arguments: all models of this process."""
    versions = loaded.versions_of(*models)
    if not versions:
        return None
    return (
        f"the weights of this engine are {', '.join(versions)}, which other processes may share: "
        "they are read-only. Publish the new weights as another version, and start an engine on it"
    )


class Guarded(NamedTuple):
    """A class of SGLang that writes into weights.

    - always: the guards of the methods that every release has.
    - some: the guards of methods that some releases have.
    - harmless: public methods that do not write into weights, or only through methods of this
      table.
    """

    always: Mapping[str, Guard]
    some: Mapping[str, Guard]
    harmless: Collection[str]


_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
_MANAGER = "sglang.srt.managers.scheduler_components.weight_updater.SchedulerWeightUpdaterManager"
# SGLang 0.5.16 to 0.5.23. LoRA adapters are tensors beside the weights. `gpuwm.sglang.refusals`
# refuses the options behind the last two classes, and the memory saver, before anything is loaded.
GUARDED: dict[str, Guarded] = {
    # runs on each rank, for one model
    _UPDATER: Guarded(
        {
            "update_weights_from_disk": update,
            "update_weights_from_tensor": update,
            "update_weights_from_ipc": update,
        },
        {
            "update_weights_from_distributed": update,  # until 0.5.20
            "load_weights_from_distributed": update,
            "receive_weights_from_distributed": session,
            "begin_weight_update": session,
            "end_weight_update": session,
        },
        {"init_weights_update_group", "destroy_weights_update_group"},
    ),
    # answers the requests, by the updater of each model
    _MANAGER: Guarded(
        {},
        {"begin_weight_update": begin},
        {
            *("update_weights_from_disk", "update_weights_from_distributed"),
            *("update_weights_from_tensor", "update_weights_from_ipc", "end_weight_update"),
            *("init_weights_update_group", "destroy_weights_update_group", "get_weights_by_name"),
            *("flush_cache_after_weight_update", "record_weight_version_after_update"),
            # Without the memory saver, which is refused, these write into buffers alone, of which
            # each engine has its own.
            *("release_memory_occupation", "resume_memory_occupation"),
            *("check_weights", "save_remote_model", "save_sharded_model"),
        },
    ),
    "sglang.srt.utils.weight_checker.WeightChecker": Guarded({"handle": check}, {}, ()),
    # EPLB moves experts from GPU to GPU
    "sglang.srt.eplb.expert_location_updater.ExpertLocationUpdater": Guarded(
        {"update": process}, {}, ()
    ),
    # other machines write the experts that a rank has lost
    "sglang.srt.elastic_ep.expert_backup_client.ExpertBackupClient": Guarded(
        {"start_transfer_client": process, "update_weights": process}, {}, ()
    ),
}
# The guards that were put in place, by class and method.
_installed: dict[tuple[str, str], Callable[..., Any]] = {}


def install() -> None:
    """Puts a guard in front of every function of SGLang that writes into weights. A function that
    has its guard keeps it. Raises Unsupported, and puts no guard in place, if this SGLang has other
    functions than those that gpuwm knows. The error names them."""
    problems = [problem for path in GUARDED for problem in _problems(path)]
    if problems:
        raise errors.Unsupported(
            "load format gpuwm can't keep SGLang "
            f"{importlib.metadata.version('sglang')} from writing into shared weights: "
            + "; ".join(problems),
            "start the engine with --load-format auto, or with a release of SGLang that gpuwm's "
            "docs/engines/releases.md lists",
        )
    for path, guarded in GUARDED.items():
        owner = pkgutil.resolve_name(path)
        for name, guard in {**guarded.always, **guarded.some}.items():
            _guard(owner, path, name, guard)


def close(model: Module) -> None:
    """Puts a guard in front of the function that loads weights into models of this class."""
    owner = type(model)
    _guard(owner, f"{owner.__module__}.{owner.__qualname__}", "load_weights", load)


def _guard(owner: type, path: str, name: str, guard: Guard) -> None:
    present = getattr(owner, name, None)
    if present is not None and present is not _installed.get((path, name)):
        _installed[path, name] = _in_front_of(present, guard)
        setattr(owner, name, _installed[path, name])


def _problems(path: str) -> Iterator[str]:
    """What this SGLang has, or lacks, in this class against the table."""
    try:
        owner = pkgutil.resolve_name(path)
    except (ImportError, AttributeError) as error:
        yield f"it has no {path} ({error})"
        return
    known = GUARDED[path]
    has = {
        name for name in dir(owner) if not name.startswith("_") and callable(getattr(owner, name))
    }
    for name in sorted(has.difference(known.always, known.some, known.harmless)):
        yield f"gpuwm does not know {path}.{name}, which may write"
    for name in sorted(set(known.always) - has):
        yield f"it has no {path}.{name}, and gpuwm does not know what writes instead"


def _in_front_of(function: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    @functools.wraps(function)
    def guarded(*args: Any, **named: Any) -> Any:
        return guard(function, *args, **named)

    return guarded
