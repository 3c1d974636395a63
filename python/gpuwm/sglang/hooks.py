"""Functions of SGLang that know the load formats or write into weights, and what runs in their
place.

Each hook gets the function that it replaces, and that function's arguments.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from . import FORMAT

_LOADER = "sglang.srt.model_loader.loader"
_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
# These run on each rank for /update_weights_from_disk and similar requests, but not for
# /load_lora….
UPDATES = (
    "update_weights_from_disk",
    "update_weights_from_distributed",
    "update_weights_from_tensor",
    "update_weights_from_ipc",
)


def verify_load_format(original: Callable[..., None], load_config: Any) -> None:
    """Accepts the load format: SGLang's load formats are an enum, which takes no further
    members."""
    if load_config.load_format != FORMAT:
        original(load_config)


def get_model_loader(
    original: Callable[..., Any], load_config: Any, model_config: Any = None
) -> Any:
    if load_config.load_format != FORMAT:
        return original(load_config, model_config)
    from .loading import Loader

    return Loader(load_config)


def update_weights(original: Callable[..., Any], updater: Any, *args: Any, **named: Any) -> Any:
    """Returns the text with which SGLang answers the request. The engine goes on with its
    weights."""
    # It is imported only if an engine loads with this format, and needs the SGLang that it is for.
    loading = sys.modules.get(f"{__package__}.loading")
    version = None if loading is None else loading.version_of(updater.get_model())
    if version is None:
        return original(updater, *args, **named)
    return False, (
        f"the weights of this engine are {version}, which other processes may share: they are "
        "read-only. Publish the new weights as another version, and start an engine on it"
    )


HOOKS: dict[str, Callable[..., Any]] = {
    "sglang.srt.configs.load_config.LoadConfig._verify_load_format": verify_load_format,
    f"{_LOADER}.get_model_loader": get_model_loader,
    **{f"{_UPDATER}.{name}": update_weights for name in UPDATES},
}
