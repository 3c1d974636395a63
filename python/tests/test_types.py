"""Whether type checkers know the types of all that the package has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig

import pytest


def test_all_types_are_known() -> None:
    checker = shutil.which("basedpyright")
    if checker is None:
        pytest.skip("needs basedpyright")
    asked = ("--verifytypes", "gpuwm", "--ignoreexternal", "--outputjson")
    found = subprocess.run(
        [checker, *asked, "--pythonpath", sys.executable],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((*sys.path, sysconfig.get_path("purelib"))),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    symbols = json.loads(found.stdout)["typeCompleteness"]["symbols"]
    assert len(symbols) > 1000
    unknown = {
        each["name"]
        for each in symbols
        if each["isExported"] and not (each["isTypeKnown"] and not each["isTypeAmbiguous"])
    }
    assert unknown == set()
