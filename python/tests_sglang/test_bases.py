"""SGLang's classes are as type checkers are told."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own, where stand-ins do not stay.
CODE = """
import tests_sglang.prepared
from gpuwm.sglang import _bases, model_loader, raw
from tests_engines.bases import differences
print("differences:", differences(_bases, model_loader, raw))
"""


def test_checkers_are_told_of_what_sglang_has() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["differences: []"], done.stderr
