"""Functions whose results are built once for all processes.

@gpuwm.builder(key="model:{hidden}")
def model(hidden=64):
    return Model(hidden)

model(hidden=128)       # the first process builds it, all others attach it
"""

from __future__ import annotations

from .. import _installation, _needs  # noqa: F401 (it raises where another project's gpuwm is)

_needs.torch("gpuwm.builder")

from .._shown.progress import Progress  # noqa: E402
from .decorator import Builder, builder  # noqa: E402
from .entries import Entry  # noqa: E402
from .submit import Build  # noqa: E402

__all__ = ["Build", "Builder", "Entry", "Progress", "builder"]
