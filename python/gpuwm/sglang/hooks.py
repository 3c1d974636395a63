"""Functions of SGLang that know the load formats, and what runs in their place.

Each hook gets the function that it replaces, and that function's arguments. SGLang puts the hooks
in place after `gpuwm.sglang.register`. If it can't, it only logs that.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import pkgutil
from collections.abc import Callable
from typing import Any

from .. import errors
from . import refusals
from .format import FORMAT

_GET_MODEL_LOADER = "sglang.srt.model_loader.loader.get_model_loader"


def load_config(original: Callable[..., None], config: Any) -> None:
    """Accepts the load format: SGLang's load formats are an enum, which takes no further members.
    Raises Unsupported if `get_model_loader` below is not in place, which gives this format its
    loader, and the errors of `refusals.check_load_config`."""
    if config.load_format != FORMAT:
        original(config)
        return
    if not _is_in_place(_GET_MODEL_LOADER, get_model_loader):
        raise errors.Unsupported(
            f"load format gpuwm has no loader in SGLang {importlib.metadata.version('sglang')}: "
            f"gpuwm's hook on {_GET_MODEL_LOADER} is not in place. SGLang's log says why",
            "start the engine with --load-format auto, or with a release of SGLang that gpuwm's "
            "docs/engines/releases.md lists",
        )
    refusals.check_load_config(config)
    config.load_format = "auto"
    original(config)
    config.load_format = FORMAT


def get_model_loader(
    original: Callable[..., Any], load_config: Any, model_config: Any = None
) -> Any:
    if load_config.load_format != FORMAT:
        return original(load_config, model_config)
    from .model_loader import Loader

    return Loader(load_config)


def default_loader(original: Callable[..., None], loader: Any, load_config: Any) -> None:
    """Lets SGLang's default loader read files. SGLang makes one with the engine's load format for
    what lies beside the weights: LoRA adapters."""
    if load_config.load_format == FORMAT:
        load_config = dataclasses.replace(
            load_config, load_format="auto", model_loader_extra_config={}
        )
    original(loader, load_config)


HOOKS: dict[str, Callable[..., Any]] = {
    "sglang.srt.configs.load_config.LoadConfig.__post_init__": load_config,
    _GET_MODEL_LOADER: get_model_loader,
    "sglang.srt.model_loader.loader.DefaultModelLoader.__init__": default_loader,
}


def _is_in_place(target: str, hook: Callable[..., Any]) -> bool:
    """Whether a call of this function reaches the hook. SGLang's wrapper has the hook in its
    closure, and the function that it wraps as `__wrapped__`."""
    try:
        function = pkgutil.resolve_name(target)
    except (ImportError, AttributeError):
        return False
    while function is not None:
        cells = getattr(function, "__closure__", None) or ()
        if any(cell.cell_contents is hook for cell in cells):
            return True
        function = getattr(function, "__wrapped__", None)
    return False
