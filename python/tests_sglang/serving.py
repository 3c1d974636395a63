"""One engine's loading, in a process of its own. multiprocessing's fork server imports `prepared`
and this module once, and every engine is a fork of that: importing SGLang takes longer than all the
rest."""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from typing import Any

import torch
from sglang.srt import runtime_context
from sglang.srt.configs.device_config import DeviceConfig
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.distributed import bootstrap
from sglang.srt.entrypoints import engine as entrypoint
from sglang.srt.layers.moe import initialize_moe_config
from sglang.srt.model_executor.model_runner_components import load_model_utils
from sglang.srt.model_loader import get_model
from sglang.srt.models import registry
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.utils import configure_logger

from gpuwm.sglang.attributes import OPAQUE
from tests_engines import serving
from tests_engines.engines import Job

from . import FORGOTTEN, RELEASE, adapters, operators, renaming, stopping, writing

operators.define()
load_plugins()  # as `sglang.launch_server` and each scheduler do
registry.ModelRegistry.get_supported_archs()  # imports the models


def serve(pipe: Connection, log: str, job: Job) -> None:
    """`tests_engines.serving.serve`. The test asks for names of `_ANSWERS`."""
    serving.begin(log, job)

    def load() -> tuple[str, serving.Answering]:
        _pretend(os.environ.get(RELEASE))
        _forget(os.environ.get(FORGOTTEN))
        stopping.apply()
        renaming.apply()
        model = _load(job)

        def answer(what: str, *arguments: Any) -> Any:
            return _ANSWERS[what](model, *arguments)

        return _describe(model), answer

    serving.serve(pipe, load)


def _pretend(version: str | None) -> None:
    """That SGLang is of another version."""
    if version is not None:
        found = importlib.metadata.version

        def told(distribution_name: str) -> str:
            return version if distribution_name == "sglang" else found(distribution_name)

        importlib.metadata.version = told


def _forget(argument: str | None) -> None:
    """Takes an argument out of gpuwm's tables, as if it were of a newer SGLang."""
    from gpuwm.sglang import arguments

    for field, names in arguments.TABLE.items():
        arguments.TABLE[field] = tuple(name for name in names if name != argument)


def _load(job: Job) -> torch.nn.Module:
    """As SGLang's ModelRunner."""
    arguments = {"skip_tokenizer_init": True, "device": "cpu", "dtype": "bfloat16"}
    server_args = ServerArgs(**{**arguments, "log_level": "info", **job.arguments})
    _decide(server_args, job)
    entrypoint._set_envs_and_config(server_args)  # a run has variables of its own
    configure_logger(server_args)
    _call(initialize_moe_config, server_args=server_args)
    model_config = ModelConfig.from_server_args(server_args)
    _call(
        bootstrap._init_parallel_groups,
        backend="gloo",
        dist_init_method=f"file://{job.meet}",
        server_args=server_args,
        model_config=model_config,
        gpu_id=0,
        tp_rank=job.rank % server_args.tp_size,
        tp_size=server_args.tp_size,
        pp_rank=job.rank // server_args.tp_size,
        pp_size=server_args.pp_size,
        attn_dp_size=server_args.dp_size if server_args.enable_dp_attention else 1,
        attn_cp_size=1,
        moe_ep_size=server_args.ep_size,
        moe_dp_size=1,
        dcp_size=1,
    )
    cache = ("weight_cache_mode", "weight_cache_socket")
    load_config = _call(
        load_model_utils.build_load_config,
        server_args=server_args,
        tp_rank=job.rank % server_args.tp_size,
        remote_instance_weight_transporter_engine=None,
        remote_instance_weight_transporter_session_id="",
        draft_model_idx=None,
        **{name: getattr(_decided(), name, None) for name in cache},
    )
    model: torch.nn.Module = get_model(
        model_config=model_config, load_config=load_config, device_config=DeviceConfig("cpu")
    )
    _state.update(server_args=server_args, model_config=model_config, load_config=load_config)
    return model


def _call(function: Callable[..., Any], **arguments: Any) -> Any:
    """Calls a function of SGLang with those of the arguments that it takes in this release."""
    takes = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in takes})


def _decide(server_args: Any, job: Job) -> None:
    """Makes SGLang decide. Since SGLang 0.5.17 it keeps what it changes while it runs apart from
    its arguments."""
    publish = getattr(runtime_context, "publish", None)
    if publish is None:
        for name, value in job.changed.items():
            server_args.override("gpuwm tests", **{name: value})
        set_global_server_args_for_scheduler(server_args)
        return
    ranks = getattr(runtime_context, "SpawnRanks", lambda _: None)(job.rank)
    _call(publish, server_args=server_args, role="scheduler", ranks=ranks)
    runtime_context.get_context().override("gpuwm tests", **job.changed)


def _decided() -> Any:
    from gpuwm.sglang import arguments

    return arguments.decided()


_state: dict[str, Any] = {}


def _describe(model: torch.nn.Module) -> str:
    return serving.describe(model, OPAQUE)


def _update(model: torch.nn.Module, path: str, load_format: str) -> tuple[bool, str]:
    """What /update_weights_from_disk does on a rank."""
    updater = writing.updater(model, _state["model_config"])
    done: tuple[bool, str] = updater.update_weights_from_disk(path, load_format)
    return done


def _draft(model: torch.nn.Module, layer: int | None, names: list[str]) -> dict[str, int]:
    """What mode raw gives a draft of several layers, by name: positions in `names`."""
    from types import SimpleNamespace

    from gpuwm.sglang import raw

    loader: Any = object.__new__(raw.RawLoader)
    loader.load_config = SimpleNamespace(draft_model_idx=layer)
    loader._weights = [(name, torch.tensor(position)) for position, name in enumerate(names)]
    return {name: int(each) for name, each in loader._get_all_weights(None, model)}


def _unknown_arguments(model: torch.nn.Module) -> set[str]:
    """Of gpuwm's table those that this release of SGLang does not have."""
    from gpuwm.sglang import arguments

    known = arguments.decided().values
    return {name for names in arguments.TABLE.values() for name in names}.difference(known)


def _other_arguments(model: torch.nn.Module) -> dict[str, Any]:
    from gpuwm.sglang import arguments

    return arguments.others(arguments.decided())


def _arguments_in_no_table(model: torch.nn.Module) -> list[str]:
    from gpuwm.sglang import arguments, harmless, refusals

    known = {name for names in arguments.TABLE.values() for name in names}
    looked_at = {"startup_weight_load_mode", "weight_cache_mode", "dwdp_size"}  # by refusals
    return [
        name
        for name in arguments.decided().values
        if name not in known | looked_at | set(refusals.REFUSED)
        and not name.startswith("_")
        and not any(fnmatchcase(name, glob) for glob in harmless.ARGUMENTS)
    ]


def _adapt(model: torch.nn.Module, folder: str) -> str:
    return adapters.load(folder=folder, model=model, **_state)


def _digests(model: torch.nn.Module) -> dict[str, str]:
    """By address: adapters wrap the layers, which then have other names."""
    return {
        str(parameter.data_ptr()): hashlib.sha256(
            parameter.view(torch.uint8).numpy().tobytes()
        ).hexdigest()
        for parameter in model.parameters()
        if parameter.data_ptr()
    }


_ANSWERS: dict[str, Callable[..., Any]] = {
    "adapt": _adapt,
    "digests": _digests,
    "draft": _draft,
    "describe": _describe,
    "requests": lambda model: writing.requests(),
    "write": lambda model, what: writing.write(model, _state["model_config"], what),
    "other arguments": _other_arguments,
    "arguments in no table": _arguments_in_no_table,
    "shared": serving.is_shared,
    "update": _update,
    "unknown arguments": _unknown_arguments,
}
