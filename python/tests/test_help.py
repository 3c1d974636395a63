"""What help() shows of the package, and which names it has for users."""

from __future__ import annotations

import inspect
import pydoc
import re

import gpuwm

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


def test_all_errors_have_names_for_users() -> None:
    kinds = inspect.getmembers(gpuwm.errors, inspect.isclass)
    errors = {name for name, kind in kinds if issubclass(kind, gpuwm.Error) and name[0] != "_"}
    assert errors <= set(gpuwm.__all__)
