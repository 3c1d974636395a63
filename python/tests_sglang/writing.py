"""The requests of SGLang that write into the weights of a running engine, as SGLang carries them
out on a rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt import runtime_context
from sglang.srt.elastic_ep.expert_backup_client import ExpertBackupClient
from sglang.srt.eplb.expert_location_updater import ExpertLocationUpdater
from sglang.srt.managers.scheduler_components.weight_updater import SchedulerWeightUpdaterManager
from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.utils.torch_memory_saver_adapter import TorchMemorySaverAdapter
from sglang.srt.utils.weight_checker import WeightChecker


def updater(model: torch.nn.Module, model_config: Any) -> WeightUpdater:
    return WeightUpdater(
        tp_rank=0,
        device="cpu",
        gpu_id=0,
        model_config=model_config,
        custom_weight_loaders=[],
        get_model=lambda: model,
        update_model_fields=lambda *_, **__: None,
        recapture_cuda_graph=lambda: None,
        get_model_runner=lambda: SimpleNamespace(server_args=runtime_context.get_server_args()),
    )


def write(model: torch.nn.Module, model_config: Any, what: str) -> tuple[str, str]:
    """Carries a request out. Returns what became of it, and SGLang's text. "done", "refused",
    "raised", or "none": this release has no such function."""
    ours = updater(model, model_config)
    try:
        with torch.no_grad():  # as SGLang's scheduler
            answer = _REQUESTS[what](ours, model)
    except Exception as error:
        return "raised", str(error)
    if answer is None:
        return "none", ""
    success, text = answer
    return "done" if success else "refused", text


def requests() -> list[str]:
    return list(_REQUESTS)


def _zeros(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    name, parameter = next(iter(model.named_parameters()))
    return [(name, torch.zeros_like(parameter))]


def _from_tensor(ours: Any, model: torch.nn.Module) -> Any:
    return ours.update_weights_from_tensor(_zeros(model), load_format="direct")


def _from_ipc(ours: Any, model: torch.nn.Module) -> Any:
    return ours.update_weights_from_ipc(SimpleNamespace(zmq_handles={}))


def _from_distributed(ours: Any, model: torch.nn.Module) -> Any:
    if hasattr(ours, "load_weights_from_distributed"):
        return ours.load_weights_from_distributed(_zeros(model))
    return ours.update_weights_from_distributed([], [], [], "nobody")


def _begin(ours: Any, model: torch.nn.Module) -> Any:
    if not hasattr(SchedulerWeightUpdaterManager, "begin_weight_update"):
        return None
    manager: Any = object.__new__(SchedulerWeightUpdaterManager)
    answer = manager.begin_weight_update(SimpleNamespace(selector="all"))
    return answer.success, answer.message


class _Manager(SimpleNamespace):
    """What the memory of weights is released and resumed with, of an engine without the memory
    saver."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__(
            scheduler=None,
            offload_tags=set(),
            tp_worker=SimpleNamespace(model_runner=SimpleNamespace(model=model)),
            tp_cpu_group=torch.distributed.group.WORLD,
            memory_saver_adapter=TorchMemorySaverAdapter.create(enable=False),
            is_fully_idle=lambda *_, **__: True,
            _assert_weight_cache_inactive=lambda _: None,
        )


def _release_and_resume(ours: Any, model: torch.nn.Module) -> Any:
    manager: Any = _Manager(model)
    request: Any = SimpleNamespace(tags=["weights"])
    SchedulerWeightUpdaterManager.release_memory_occupation(manager, request)
    SchedulerWeightUpdaterManager.resume_memory_occupation(manager, request)
    return True, ""


def _move_experts(ours: Any, model: torch.nn.Module) -> Any:
    taken = list(inspect.signature(ExpertLocationUpdater.update).parameters)[1:]
    ExpertLocationUpdater().update(**dict.fromkeys(taken))
    return True, ""


def _restore_experts(name: str) -> Callable[..., Any]:
    def restore(ours: Any, model: torch.nn.Module) -> Any:
        getattr(object.__new__(ExpertBackupClient), name)()
        return True, ""

    return restore


def _by_the_model(ours: Any, model: Any) -> Any:
    """By a function that gpuwm does not know."""
    model.load_weights(_zeros(model))
    return True, ""


def _step(name: str, **arguments: Any) -> Callable[..., Any]:
    """A step of a session that `_begin` should have begun."""

    def step(ours: Any, model: torch.nn.Module) -> Any:
        if not hasattr(ours, name):
            return None
        getattr(ours, name)(**arguments)
        return True, ""

    return step


def _check(action: str) -> Callable[..., Any]:
    def check(ours: Any, model: torch.nn.Module) -> Any:
        takes = inspect.signature(WeightChecker).parameters
        checker = WeightChecker(get_model=lambda: model, **({"ps": None} if "ps" in takes else {}))
        takes = inspect.signature(WeightChecker.handle).parameters
        checker.handle(action=action, **({"role": "target"} if "role" in takes else {}))
        return True, ""

    return check


_REQUESTS: dict[str, Callable[..., Any]] = {
    "tensor": _from_tensor,
    "ipc": _from_ipc,
    "distributed": _from_distributed,
    "begin": _begin,
    "begin on a rank": _step("begin_weight_update"),
    "receive on a rank": _step(
        "receive_weights_from_distributed", names=[], dtypes=[], shapes=[], group_name="nobody"
    ),
    "end on a rank": _step("end_weight_update", run_post_load=True),
    "reset": _check("reset_tensors"),
    "look": _check("snapshot"),
    "release and resume": _release_and_resume,
    "EPLB": _move_experts,
    "backup": _restore_experts("update_weights"),
    "transfers of the backup": _restore_experts("start_transfer_client"),
    "the model's own function": _by_the_model,
}
