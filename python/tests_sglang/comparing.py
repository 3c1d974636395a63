"""Whether two engines have the same model."""

from __future__ import annotations

from tests_vllm import comparing
from tests_vllm.engines import Engine

# How EPLB, which is refused, finds weights: a model that loads sets it, `gpuwm.sglang.attributes`.
NOT_OF_THE_MODEL = "routed_experts_weights_of_layer"


def differences(one: Engine, other: Engine) -> list[str]:
    """`tests_vllm.comparing.differences`, without what an engine that attaches does not need."""
    found = comparing.differences(one, other)
    return [line for line in found if not line.startswith(NOT_OF_THE_MODEL)]
