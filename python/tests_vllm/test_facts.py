"""What is committed of this vLLM is what it has, and scripts/engines sees what is missing in
another one."""

from __future__ import annotations

import pytest

from tests_engines import copied_texts
from tests_engines.releases import facts
from tests_engines.releases.plugin import Plugin
from tests_engines.releases.wheels import Texts


@pytest.fixture(scope="module")
def texts() -> Texts:
    return copied_texts.installed("vllm")


def test_facts_are_those_of_this_release(texts: Texts) -> None:
    assert facts.collect(texts, Plugin("vllm")) == copied_texts.committed(texts)


def test_each_name_that_is_gone_is_named(texts: Texts) -> None:
    names = copied_texts.needed(texts)
    assert len(names) > 15
    found = copied_texts.problems_of(copied_texts.without(texts, *names))
    assert [name for name in names if not any(name in problem for problem in found)] == []


def test_a_method_that_takes_another_argument_is_named(texts: Texts) -> None:
    path = "vllm/model_executor/model_loader/base_loader.py"
    copy = copied_texts.changed(
        texts, path, "def download_model(self, ", "def download_model(self, a, "
    )
    (problem,) = set(copied_texts.problems_of(copy)) - set(copied_texts.problems_of(texts))
    assert (
        "BaseModelLoader.download_model takes (model_config), the engine's (a, model_config)"
        in problem
    )


def test_a_function_that_wants_another_argument_is_named(texts: Texts) -> None:
    path = "vllm/model_executor/model_loader/__init__.py"
    copy = copied_texts.changed(texts, path, "def get_model_loader(", "def get_model_loader(a, ")
    found = set(copied_texts.problems_of(copy)) - set(copied_texts.problems_of(texts))
    assert found
    assert all("get_model_loader(a, load_config) needs load_config" in each for each in found)
