"""Whether two engines have the same model."""

from __future__ import annotations

from gpuwm import image

from .engines import Engine

NOT_OF_THE_MODEL = (
    # A stopwatch of vLLM 0.33, in which two loads of vLLM's own differ.
    "online_quantization_time",
    # How SGLang's EPLB, which is refused, finds weights. A model that loads sets it.
    "routed_experts_weights_of_layer",
)


def differences(one: Engine, other: Engine) -> list[str]:
    """What gpuwm.image names as different in the models of two engines, once they are loaded."""
    return described_differences(one.loaded(), other.loaded())


def described_differences(one: str, other: str) -> list[str]:
    """The same, of two descriptions of models."""
    first, second = (image.Description.from_json(each) for each in (one, other))
    found = image.differences(first, second)
    return [line for line in found if not any(name in line for name in NOT_OF_THE_MODEL)]
