"""Options that every engine refuses, by name, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .. import errors

# Quantisation methods whose result is not a module: state lies beside the parameters, or the
# parameters have no shape before the checkpoint is read.
REFUSED_METHODS = {
    "bitsandbytes": "bitsandbytes keeps the state of its quantisation outside of the module",
    "gguf": "a GGUF checkpoint becomes tensors of its own kind while it is loaded",
}
OFFLOADS = (
    "offloading moves weights to host memory, and the weights that gpuwm holds stay where they are"
)
WITHOUT = "start the engine without it"


class Refused(NamedTuple):
    """what: the option, and its value if that counts."""

    what: str
    why: str
    remedy: str = WITHOUT


def check(refused: Iterable[Refused]) -> None:
    """Raises Unsupported, which names the first of these options."""
    for what, why, remedy in refused:
        raise errors.Unsupported(f"load format gpuwm refuses {what}: {why}", remedy)


def several_machines(flag: str, nodes: int) -> Iterator[Refused]:
    if nodes > 1:
        yield Refused(
            f"{flag} {nodes}",
            "the ranks of an engine share one version, and a gpuwmd holds the memory of one "
            "machine only",
            "start the engine on one machine",
        )


def quantization(method: str | None) -> Iterator[Refused]:
    if method in REFUSED_METHODS:
        yield Refused(
            f"--quantization {method}",
            REFUSED_METHODS[method],
            "start the engine with --load-format auto, or with another quantisation",
        )
