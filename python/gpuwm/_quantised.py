"""Models of transformers from module images: a quantised model, as one process has loaded it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from . import errors
from ._mapping import Mapping
from ._torch import init
from .image import install, record


def is_image(mapping: Mapping) -> bool:
    return record.FILE in mapping.files


def method_of(config: Any) -> str | None:
    """The name of the method by which a model of this configuration is quantised."""
    found = _settings(config)
    if found is None:
        return None
    method = found.get("quant_method") if isinstance(found, dict) else found.quant_method
    return str(getattr(method, "value", method))


def _settings(config: Any) -> Any:
    for each in (config, config.get_text_config(decoder=True)):
        if (found := getattr(each, "quantization_config", None)) is not None:
            return found
    return None


def model_of(mapping: Mapping, config: Any, make: Callable[[], Any], **options: Any) -> Any:
    """Makes the model that the publisher of an image had: transformers makes its modules, without
    weights, and the image gives them what they hold.

    make: returns a model of the configuration, as it is before it is quantised. options: of
    `gpuwm.image.install`. Raises its errors, and Unsupported if transformers can't make a model
    that is quantised so."""
    tensors = mapping.state_dict().values()
    device = next((tensor.device for tensor in tensors), torch.device("cpu"))
    with init.empty_init():
        is_plain = _settings(config) is None
        model = make() if is_plain else _modules(mapping, config, make, device)
    install(model, mapping, **options)
    return model


def _modules(mapping: Mapping, config: Any, make: Callable[[], Any], device: torch.device) -> Any:
    auto: Any = importlib.import_module("transformers.quantizers.auto")
    method = method_of(config)
    try:
        quantizer = auto.AutoHfQuantizer.from_config(_settings(config), pre_quantized=True)
        everywhere = {"": device}
        quantizer.validate_environment(device_map=everywhere, weights_only=True)
        model = make()
        quantizer.preprocess_model(
            model=model, dtype=model.dtype, device_map=everywhere, checkpoint_files=None
        )
        model.hf_quantizer = quantizer
        quantizer.postprocess_model(model)
    except (ImportError, ValueError, RuntimeError, AttributeError) as error:
        raise errors.Unsupported(
            f"{mapping.version} is quantised ({method}), and transformers can't make its modules "
            f"here: {type(error).__name__} {error}",
            f"install what {method} needs, as it is where the image was published",
        ) from error
    return model
