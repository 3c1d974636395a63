"""README and docs/: links that lead somewhere, lists that are the code's, examples that run."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.sglang import refusals as sglang_refusals
from gpuwm.sglang import settings as sglang_settings
from gpuwm.vllm import differences, refusals, settings
from gpuwm.vllm.kv import settings as kv_settings

ROOT = pathlib.Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
ENGINES = ROOT / "docs" / "engines.md"
# The bundle for GPU machines has the README only.
with_docs = pytest.mark.skipif(not ENGINES.exists(), reason="docs/ is not here")


def section(path: pathlib.Path, heading: str) -> str:
    text = path.read_text()
    begin = text.index(f"\n## {heading}\n")
    return text[begin : text.find("\n## ", begin + 1)]


def first_cells(table: str) -> list[str]:
    """Of the rows of all tables, without backquotes."""
    return re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)


def anchors(path: pathlib.Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in kept}


@with_docs
@pytest.mark.parametrize("path", [*sorted(ROOT.glob("*.md")), *DOCS], ids=lambda path: path.name)
def test_links_lead_somewhere(path: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        file, _, anchor = target.partition("#")
        named = path.parent / file if file else path
        assert named.exists(), target
        assert not anchor or anchor in anchors(named), target


@with_docs
def test_options_of_the_kv_connector() -> None:
    text = section(ENGINES, "KV caches that move between engines")
    assert first_cells(text) == list(kv_settings.CHECKS)


@with_docs
def test_files_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    there = {path.name for path in ROOT.glob("*/**/*.[ch]")}
    named = set(re.findall(r"`(?:[a-z_]+/)*([a-z_]+\.[ch])`", text))
    assert len(named) > 40
    assert named - there == set()


@with_docs
def test_readme_leads_to_every_guide() -> None:
    readme = (ROOT / "README.md").read_text()
    guides = [path.relative_to(ROOT) for path in DOCS]
    assert [str(guide) for guide in guides if f"({guide})" not in readme] == []


@with_docs
def test_all_options_of_the_load_format_are_there() -> None:
    told = first_cells(section(ENGINES, "Options"))
    assert sorted(told) == sorted([*settings._CHECKS, *settings.MODES])


@with_docs
def test_all_that_is_refused_is_there() -> None:
    told = section(ENGINES, "Limits")
    source = pathlib.Path(refusals.__file__).read_text()
    flags = set(re.findall(r"--[a-z-]+", source)) - {"--quantization", "--load-format"}
    flags -= {"--weight-transfer-"}  # goes on in the next line of the source
    assert {flag for flag in flags if flag not in told} == set()
    assert all(method in told.lower() for method in refusals.REFUSED_METHODS)


@with_docs
def test_sglang_s_options_and_refusals_are_there() -> None:
    told = section(ENGINES, "SGLang")
    source = pathlib.Path(sglang_refusals.__file__).read_text()
    flags = set(re.findall(r"--[a-z-]+", source)) - {"--quantization", "--load-format"}
    flags -= {"--speculative-draft-load-format"}
    named = {*flags, *(f"`{name}`" for name in (*sglang_settings.KEYS, *sglang_settings.INNER))}
    assert {each for each in named if each not in told} == set()


@with_docs
def test_what_a_mismatch_says() -> None:
    with pytest.raises(gpuwm.Mismatch) as told:
        differences.compare("llama@v1", {"key.dtype": "bfloat16"}, {"dtype": "float16"})
    assert str(told.value) in " ".join(section(ENGINES, "Keys").split())


@with_docs
@by_torch
def test_the_module_image_example_works_as_pasted(daemon: Daemon) -> None:
    found = re.search(r"```python\n(.*?)```", section(ENGINES, "Any torch.nn.Module"), re.DOTALL)
    assert found

    def make() -> nn.Module:
        return nn.Linear(16, 16)

    names: dict[str, Any] = {"make": make, "make_without_loading": make}
    exec(found.group(1), names)
    installed = names["installed"]
    assert str(installed.mapping.version) == "net@v1"
    assert sorted(installed.shared) == ["bias", "weight"]
    again = make()
    gpuwm.image.install(again, "net@v1")
    assert gpuwm.image.differences(names["model"], again) == []
    ones = torch.ones(1, 16, device=DEVICE)
    assert torch.equal(names["model"](ones), again(ones))
