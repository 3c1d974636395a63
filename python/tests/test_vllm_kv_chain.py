"""The keys of the KV connector: what they depend on, and what they do not."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from gpuwm.vllm.kv import chain
from gpuwm.vllm.kv.chain import KEY_BYTES, Chain, Extras

ROOT = b"r" * KEY_BYTES
SIZE = 4
TOKENS = list(range(11))  # two full blocks, and three tokens


def keys(
    tokens: list[int] = TOKENS, root: bytes = ROOT, extras: Extras | None = None, size: int = SIZE
) -> list[bytes]:
    made = Chain(root, size, extras or Extras())
    made.extend(tokens, len(tokens) // size)
    joined = made.keys(0, len(made))
    return [joined[at : at + KEY_BYTES] for at in range(0, len(joined), KEY_BYTES)]


def test_only_full_blocks_have_keys() -> None:
    assert [len(keys(TOKENS[:count])) for count in range(9)] == [0, 0, 0, 0, 1, 1, 1, 1, 2]


def test_a_key_covers_all_tokens_before() -> None:
    other = keys([99, *TOKENS[1:]])
    assert not set(other) & set(keys())
    assert keys([*TOKENS[:7], 99])[0] == keys()[0]


def test_tokens_that_come_later_give_the_same_keys() -> None:
    made = Chain(ROOT, SIZE, Extras())
    for count in range(len(TOKENS) + 1):
        made.extend(TOKENS[:count], count // SIZE)
    assert made.keys(0, 2) == b"".join(keys())


def test_large_and_negative_tokens_do_not_overflow() -> None:
    assert keys([2**40, -1, 0, 1]) != keys([0, -1, 0, 1])


def test_texts_of_a_request_need_not_be_utf_8() -> None:
    salts = [keys(extras=Extras(("salt", salt))) for salt in ("\ud800", "\ud801")]
    pictures = [keys(extras=Extras((), ((0, 2, name),))) for name in ("\ud800", "\ud801")]
    assert len({each[0] for each in salts + pictures}) == 4


@pytest.mark.parametrize(
    "changed",
    [
        {"root": b"s" * KEY_BYTES},
        {"extras": Extras(("salt", "a"))},
        {"extras": Extras(("salt", "b"))},
        {"extras": Extras(("lora", "a"))},
        {"extras": Extras((), ((0, 2, "picture"),))},
        {"extras": Extras((), ((1, 2, "picture"),))},
        {"extras": Extras((), ((0, 3, "picture"),))},
        {"extras": Extras((), ((0, 2, "another"),))},
        {"size": 2},
    ],
)
def test_what_kv_depends_on_is_in_every_key(changed: dict[str, Any]) -> None:
    others: list[dict[str, Any]] = [
        {},
        {"extras": Extras(("salt", "c"))},
        {"extras": Extras((), ((3, 2, "picture"),))},
        {"size": 3},
    ]
    for other in others:
        assert not set(keys(**changed)) & set(keys(**other))


def test_a_picture_is_in_the_blocks_that_it_overlaps_and_after() -> None:
    picture = keys(extras=Extras((), ((4, 2, "picture"),)))
    assert [mine == plain for mine, plain in zip(picture, keys(), strict=True)] == [True, False]


def test_parts_of_a_digest_do_not_run_together() -> None:
    assert chain.digest(b"ab", b"c") != chain.digest(b"a", b"bc")
    assert chain.fields_digest({"a": "b"}) != chain.fields_digest({"a": "", "b": ""})


def test_the_root_depends_on_each_rank_and_their_order() -> None:
    a, b = b"a" * KEY_BYTES, b"b" * KEY_BYTES
    roots = [chain.root_of(each) for each in ((a,), (b,), (a, b), (b, a), (a, a))]
    assert len(set(roots)) == len(roots)


def test_another_process_makes_the_same_keys() -> None:
    code = (
        "from gpuwm.vllm.kv.chain import Chain, Extras\n"
        f"made = Chain({ROOT!r}, {SIZE}, Extras(('salt', 'a')))\n"
        f"made.extend({TOKENS}, 2)\n"
        "print(made.keys(0, 2).hex())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == b"".join(keys(extras=Extras(("salt", "a")))).hex()


def request(**changes: Any) -> Any:
    values = {
        "prompt_token_ids": TOKENS,
        "prompt_embeds": None,
        "cache_salt": None,
        "lora_request": None,
        "mm_features": [],
        "resumable": False,
    }
    return types.SimpleNamespace(**{**values, **changes})


def feature(offset: int, length: int, identifier: str) -> Any:
    position = types.SimpleNamespace(offset=offset, length=length)
    return types.SimpleNamespace(mm_position=position, identifier=identifier)


LORA = types.SimpleNamespace(lora_name="a", lora_int_id=1)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Extras()),
        ({"cache_salt": "s"}, Extras(("salt", "s"))),
        ({"mm_features": [feature(3, 2, "p")]}, Extras((), ((3, 2, "p"),))),
        ({"lora_request": LORA}, None),
        ({"prompt_embeds": object()}, None),
        ({"prompt_token_ids": None}, None),
        ({"resumable": True}, None),
    ],
)
def test_extras_of_a_request(changes: dict[str, Any], expected: Extras | None) -> None:
    assert chain.extras_of(request(**changes), lora_by_name=False) == expected


def test_adapters_are_shared_by_name_if_somebody_promises_what_a_name_means() -> None:
    assert chain.extras_of(request(lora_request=LORA), lora_by_name=True) == Extras(("lora", "a"))
