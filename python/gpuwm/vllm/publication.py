"""Makes a version of a model that vLLM has loaded, by all ranks together."""

from __future__ import annotations

from typing import Any

from .._mapping import Mapping as Attached
from ..engines import publication
from ..engines.engine import Engine
from . import attributes, backends

# Objects that belong to the engine, and not to the model: all modules refer to them.
OPAQUE = ("vllm.config.*", "transformers.configuration_utils.*", "vllm.distributed.*")
MADE_BY = "vllm.maker"  # metadata: JSON with engine, pid and model


def publish(engine: Engine, model: Any, made_by: str) -> Attached:
    """`gpuwm.engines.publication.publish` of a model of vLLM. Collective."""
    return publication.publish(
        engine,
        model,
        backends.backends(model),
        {MADE_BY: made_by},
        opaque=OPAQUE,
        ignored=attributes.IGNORED,
        written=attributes.WRITTEN,
    )
