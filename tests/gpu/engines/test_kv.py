"""The parts that pass KV between engines, with engines that fake_kv.py stands in for."""

from __future__ import annotations

import pathlib

import pytest

import asking
import kv
from test_driver import driver, survivors


def test_prompts_are_the_same_in_every_process() -> None:
    one = asking.token_ids([[7, 40], [8, 5]])
    assert one[:40] == asking.token_ids([[7, 40], [9, 5]])[:40]
    assert one[40:] != asking.token_ids([[7, 40], [9, 5]])[40:]
    assert one[:3] == [325, 153, 651]  # whatever Python's hashes start from
    asked = asking.Question("put", [[7, 40]], tokens=1)
    assert asking.question(asked.line()) == asked
    assert asking.question("again") is None


@pytest.mark.parametrize(("length", "blocks"), [(1000, 62), (30000, 1874), (16, 0), (17, 1)])
def test_one_token_at_least_is_computed(length: int, blocks: int) -> None:
    assert kv.whole_blocks(length) == 16 * blocks


def test_a_difference_of_tokens_is_named() -> None:
    one = {"tokens": [5, 6], "likely": [{"5": "0x1p-1"}, {"6": "0x1p-2"}]}
    other = {"tokens": [5, 7], "likely": [{"5": "0x1p-1"}, {"7": "0x1p-3"}]}
    assert kv.difference(one, other) == "token 1: {'6': '0x1p-2'} and {'7': '0x1p-3'}"
    assert kv.difference(one, {"tokens": [5], "likely": []}) == "2 tokens and 1"


@pytest.mark.parametrize("part", ["kv", "kv-faults", "kv-graphs", "kv-sleep", "kv2"])
def test_kv_passes_between_engines(part: str, tmp_path: pathlib.Path) -> None:
    status, text, lines = driver(tmp_path, part)
    assert status == 0, text
    assert any(line["kind"] == "generated" for line in lines)
    assert sum(line["kind"] == "check" for line in lines) > 4
    assert not survivors(tmp_path)


@pytest.mark.parametrize(
    ("fault", "part", "words"),
    [
        (
            "cold",
            "kv-graphs",
            "FAILED decode, 1000 tokens: 992 of 1000 tokens come from the cache: [0]",
        ),
        ("wrong", "kv-graphs", "FAILED decode and one engine with its own cache, 1000 tokens"),
        ("nameless", "kv-faults", "FAILED after the swap: nothing comes from a cache: [3984]"),
        ("still", "kv-faults", "did not move to kvswap@v2"),
    ],
)
def test_faulty_kv_fails_the_part(
    fault: str, part: str, words: str, tmp_path: pathlib.Path
) -> None:
    status, text, _ = driver(tmp_path, part, FAKE_FAULT=fault)
    assert status == 1
    assert words in text
