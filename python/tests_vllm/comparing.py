"""Whether two engines have the same model."""

from __future__ import annotations

from gpuwm import image

from .engines import Engine

# A stopwatch of vLLM 0.33, in which two loads of vLLM's own differ.
NOT_OF_THE_MODEL = "online_quantization_time"


def differences(one: Engine, other: Engine) -> list[str]:
    """What gpuwm.image names as different in the models of two engines, once they are loaded."""
    return described_differences(one.loaded(), other.loaded())


def described_differences(one: str, other: str) -> list[str]:
    """The same, of two descriptions of models."""
    first, second = (image.Description.from_json(each) for each in (one, other))
    return [line for line in image.differences(first, second) if NOT_OF_THE_MODEL not in line]
