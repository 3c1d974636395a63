"""Keys that gpuwmctl, the exporter, follow and gpuwm-peer read in answers are keys of messages."""

from __future__ import annotations

import pathlib
import re

import pytest
from conftest import DEVICE

TREE = pathlib.Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    not (TREE / "proto").is_dir() or DEVICE != "cpu", reason="the code is not here, or looked at"
)

COMMENT = re.compile(r"/\*.*?\*/", re.S)
# What a message has: a row of a record, a map or an array that gpuwmd opens by hand.
ROW = re.compile(r"\bFIELD_\w+\(\s*(?:struct \w+,\s*(\w+)|\"(\w+)\")")
OPENED = re.compile(r"message_(?:begin|put)_\w+\(&?\w+, \"(\w+)\"")
# What a program reads, at the end of a call or in a column of a table.
READ = re.compile(
    r"\b(?:json_object_get|answer_(?:text|number|true|error_print)|member_\w+|text_of|number_of|sum_of|tag_of)"
    r"\((?:[^()]|\([^()]*\))*?,\s*\"(\w+)\""
)
COLUMN = re.compile(r"\{\"[^\"]*\",\s*cell_\w+,\s*\"(\w+)\"")
# What a program puts into a result of its own, and then reads like an answer.
OWN = re.compile(r"\b(?:json_pack|json_object_set|json_object_set_new|text_add)\(([^;]*);")

# gpuwmctl reads what gpuwm-peer prints, and the index of a checkpoint's files.
ALSO = {"client/ctl": ("peer", {"weight_map"})}


def code(folder: str) -> list[str]:
    """The C of a folder, without comments."""
    return [COMMENT.sub("", path.read_text()) for path in sorted((TREE / folder).rglob("*.c"))]


def own_keys(folder: str) -> set[str]:
    """The keys of results that the program makes."""
    calls = [call for text in code(folder) for call in OWN.findall(text)]
    return {key for call in calls for key in re.findall(r'"(\w+)"', call)}


def keys_of_messages() -> set[str]:
    """All keys of records and of what gpuwmd writes by hand."""
    keys = {a or b for text in code("proto") for a, b in ROW.findall(text)}
    return keys | {key for text in code("daemon") for key in OPENED.findall(text)}


@pytest.mark.parametrize("folder", ["client/ctl", "exporter", "follow", "peer"])
def test_keys_that_are_read_are_keys_of_messages(folder: str) -> None:
    """A key that a message has no more would be missing from every answer, without an error."""
    other, others = ALSO.get(folder, ("", set()))
    known = keys_of_messages() | own_keys(folder) | (own_keys(other) if other else set()) | others
    read = {key for text in code(folder) for key in READ.findall(text) + COLUMN.findall(text)}
    assert len(read) >= 4, "the patterns find the calls no more"
    assert read - known == set()
