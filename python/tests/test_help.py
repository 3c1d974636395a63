"""What help() shows of the package, and which names it has for users."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest
from conftest import run_python

import gpuwm
from gpuwm import _lease

SCREENS = 2 * 24  # lines


def test_help_begins_with_what_users_call() -> None:
    said = pydoc.plain(pydoc.render_doc(gpuwm))
    begins = said[: said.index("PACKAGE CONTENTS")]
    found = re.findall(r"^ {8}(\w+(?:, \w+)*) {2,}", begins, re.MULTILINE)
    listed = [name for names in found for name in names.split(", ")]
    assert listed[0] == "attach"
    assert set(listed) <= set(gpuwm.__all__)
    assert set(listed) >= {name for name in gpuwm.__all__ if name.islower() and name[0] != "_"}


def test_help_of_attach_is_short() -> None:
    said = pydoc.plain(pydoc.render_doc(gpuwm.attach))
    assert said.count("\n") <= SCREENS


def test_help_of_attach_has_its_options() -> None:
    said = inspect.getdoc(gpuwm.attach) or ""
    listed = ", ".join(re.findall(r"^- ([^:]*):", said, re.MULTILINE)).split(", ")
    assert sorted(listed) == sorted(["ref", "copy", *_lease.MapOptions.__optional_keys__])


def test_an_option_that_does_not_exist() -> None:
    with pytest.raises(TypeError, match=r"^attach\(\) got an unexpected keyword .*'devcie'$"):
        gpuwm.attach("model", devcie="host")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"^publish\(\) got an unexpected keyword .*'tll'$"):
        gpuwm.publish({}, "model@tag", tll=1)  # type: ignore[call-overload]


def test_dir_has_what_users_call() -> None:
    assert dir(gpuwm) == sorted(gpuwm.__all__)


def test_image_comes_with_its_first_use() -> None:
    code = """
import sys, gpuwm
assert "torch" not in sys.modules
print(gpuwm.image.publish.__module__)
"""
    assert run_python(code) == "gpuwm.image._publish\n"


def test_all_errors_have_names_for_users() -> None:
    kinds = inspect.getmembers(gpuwm.errors, inspect.isclass)
    errors = {name for name, kind in kinds if issubclass(kind, gpuwm.Error) and name[0] != "_"}
    assert errors <= set(gpuwm.__all__)
    assert {name for name in errors if not getattr(gpuwm, name).__doc__} == set()
