"""Module images: a module of torch as it is after loading, published once and installed by many.

    import gpuwm.image
    gpuwm.image.publish(model, "llama@v1")      # sharded, fused, quantised: as it is now

    with gpuwm.empty_init():                    # in any other process
        model = Model(config)
    gpuwm.image.install(model, "llama@v1")      # it is that module, on shared memory

    model = gpuwm.image.module("llama@v1")      # or without the code that made the published one

It needs torch, and knows no engine.
"""

from __future__ import annotations

from .. import _installation, _needs  # noqa: F401 (it raises where another project's gpuwm is)

_needs.torch("gpuwm.image")

from ._describe import Description, describe, differences  # noqa: E402
from ._install import Installed, install  # noqa: E402
from ._module import module  # noqa: E402
from ._publish import publish  # noqa: E402

__all__ = [
    "Description",
    "Installed",
    "describe",
    "differences",
    "install",
    "module",
    "publish",
]
