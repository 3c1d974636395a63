"""Where torch is not installed: everything that needs it says so."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Daemon, run_python

from gpuwm import _needs

WITHOUT = """
import sys
sys.modules["torch"] = None
import gpuwm
"""
SAYS = """
try:
    {call}
except gpuwm.Unsupported as error:
    print(error)
"""
NEEDS = "needs torch, and there is none:"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("gpuwm.empty_init", f"gpuwm.empty_init {NEEDS} install torch"),
        ("gpuwm.build('m', dict)", f"gpuwm.build {NEEDS} install torch"),
        ("from gpuwm import build", f"gpuwm.build {NEEDS} install torch"),
        ("gpuwm.transformers", f"gpuwm.transformers {NEEDS} {_needs.TRANSFORMERS}"),
    ],
)
def test_it_is_said(call: str, says: str) -> None:
    assert run_python(WITHOUT + SAYS.format(call=call)) == f"{says}\n"


@pytest.mark.parametrize("how", ["import gpuwm.transformers", "from gpuwm import transformers"])
def test_importing_what_needs_it_is_an_import_error(how: str) -> None:
    code = f"""{WITHOUT}
try:
    {how}
except ImportError as error:
    print(isinstance(error, gpuwm.Unsupported), error)
"""
    assert run_python(code) == f"True gpuwm.transformers {NEEDS} {_needs.TRANSFORMERS}\n"


def test_hasattr_says_no() -> None:
    code = f"{WITHOUT}print([name for name in gpuwm.__all__ if not hasattr(gpuwm, name)])"
    names = ["BindError", "BindResult", "CheckResult", "Unbound", "WriteError", "build", "builder"]
    names += ["empty_init", "image", "mapping_of", "ref", "transformers"]
    assert eval(run_python(code)) == names


def test_help_shows_the_rest() -> None:
    code = f"{WITHOUT}import pydoc\nprint(pydoc.plain(pydoc.render_doc(gpuwm)))"
    said = run_python(code)
    assert "attach(ref:" in said
    assert "class Mapping" in said
    assert "empty_init(" not in said


def test_what_a_mapping_does_with_it(daemon: Daemon) -> None:
    name = daemon.load("plain@v1", {"a": np.ones(4, np.float32)})
    code = f"""{WITHOUT}
w = gpuwm.attach("{name}")
for call in (lambda: w.bind(w), lambda: w.check(w), lambda: w.ref("a").torch(), w.state_dict):
    try:
        call()
    except gpuwm.Unsupported as error:
        print(error)
"""
    assert run_python(code).splitlines() == [
        f"Mapping.bind {NEEDS} install torch",
        f"Mapping.check of a model {NEEDS} install torch",
        f"Ref.torch {NEEDS} install torch",
        "tensor a can't be a torch tensor: there is no torch here: "
        "install torch; memoryview() (host) and tobytes() need nothing",
    ]
