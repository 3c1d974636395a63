"""What is committed of this SGLang is what it has, and scripts/engines sees what is missing in
another one."""

from __future__ import annotations

import pytest

from tests_engines import copied_texts
from tests_engines.releases import facts
from tests_engines.releases.plugin import Plugin
from tests_engines.releases.wheels import Texts


@pytest.fixture(scope="module")
def texts() -> Texts:
    return copied_texts.installed("sglang")


def test_facts_are_those_of_this_release(texts: Texts) -> None:
    assert facts.collect(texts, Plugin("sglang")) == copied_texts.committed(texts)


def test_each_name_that_is_gone_is_named(texts: Texts) -> None:
    names = copied_texts.needed(texts)
    assert set(facts.hooks(Plugin("sglang"))) < set(names)
    found = copied_texts.problems_of(copied_texts.without(texts, *names))
    assert [name for name in names if not any(name in problem for problem in found)] == []


def test_guarded_functions_with_other_names_are_named(texts: Texts) -> None:
    guarded = facts.guarded(Plugin("sglang"))
    names = [f"{path}.{name}" for path, (always, _, _) in guarded.items() for name in always]
    found = copied_texts.problems_of(copied_texts.without(texts, *names))
    for name in names:
        assert f"guarded method {name} is gone" in found
        assert f"{name}_of_tomorrow may write, and is not guarded" in found


def test_an_unknown_argument_is_named(texts: Texts) -> None:
    (path,) = (each for each in texts.paths() if "    enable_lora: A[" in texts[each])
    copy = copied_texts.changed(
        texts, path, "    enable_lora: A[", "    of_tomorrow: int = 1\n    enable_lora: A["
    )
    (problem,) = set(copied_texts.problems_of(copy)) - set(copied_texts.problems_of(texts))
    assert problem == "argument ServerArgs.of_tomorrow is in neither list: counts, harmless"
