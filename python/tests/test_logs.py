"""The package's log: silent unless the program asks."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
from conftest import Daemon, Tensors, run_python

import gpuwm

ONES = np.ones(4, np.float32)


def test_it_is_silent_unless_asked(checkpoint: Callable[[Tensors], str]) -> None:
    code = (
        "import sys, logging, gpuwm; gpuwm.attach(sys.argv[1]).close()\n"
        "handlers = logging.getLogger('gpuwm').handlers\n"
        "print([type(each).__name__ for each in handlers], logging.getLogger().handlers)"
    )
    assert run_python(code, checkpoint({"a": ONES})) == "['NullHandler'] []\n"


def test_what_the_package_did(
    daemon: Daemon, checkpoint: Callable[[Tensors], str], caplog: pytest.LogCaptureFixture
) -> None:
    ref = checkpoint({"a": ONES})
    model = ref.partition("@")[0]
    other = checkpoint({"a": ONES * 2})
    daemon.admin.set_alias(model, "current", "v2")
    with caplog.at_level(logging.INFO, "gpuwm"):
        w = gpuwm.attach(ref)
        first = w.version.id
        w.switch(other)
        daemon.admin.set_alias(model, "prod", "v2")
        daemon.admin.retire(ref)
        version = gpuwm.publish({"a": ONES}, f"{model}@v3", bind=False)
        with pytest.raises(gpuwm.TimedOut):
            gpuwm.attach(f"{model}@v9", wait=0.5)
    where, has = daemon.device, f"1 tensors, {version.nbytes} bytes"
    assert [(each.name, each.getMessage()) for each in caplog.records] == [
        ("gpuwm.attach", f"attached {ref} ({first}) on {where}"),
        ("gpuwm.switch", f"switched from {ref} ({first}) to {other} ({w.version.id})"),
        ("gpuwm.client", f"{model}@prod is v2 now"),
        ("gpuwm.client", f"retired {ref}"),
        ("gpuwm.publish", f"published {version} ({version.id}) on host: {has}"),
        ("gpuwm.attach", f"waits for {model}@v9"),
    ]
