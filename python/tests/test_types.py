"""Whether type checkers know the types of all that the package has, and take the documents'
examples."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

import pages
import pytest
from conftest import BACKEND

PACKAGE = pages.ROOT / "python"
READER = PACKAGE / "tests" / "reader.py"

pytestmark = pytest.mark.skipif(BACKEND != "host", reason="types are the same on all memory")

# Each of them is what a user may write, and both checkers have to report it.
MISTAKES = """
import gpuwm
import gpuwm.vllm
from reader import client, job, model, tensors, w

gpuwm.atach("llama")
gpuwm.attach("llama", wiat=60)
gpuwm.attach("llama", rank="3")
gpuwm.attach("llama", wait="60")
gpuwm.attach(key={"dtype": "bf16"})
gpuwm.attach("llama", transport="nccl")
gpuwm.attach("llama", copy=True)["a"].torch().tolist().nothing
gpuwm.attach_async("llama").infos()
gpuwm.publish(model, "llama@v1", bind="no")
gpuwm.publish(tensors, "llama@v1", bind=False).torch("a")
gpuwm.build("llama@v1", 7)
gpuwm.build("llama@v1", lambda: model).no_such_method_of_a_module(1)()
gpuwm.connect(admin="yes")
gpuwm.set_progress(lambda: None)
gpuwm.Pool("512 MiB", "cuda")
gpuwm.Queue.open(7)
gpuwm.vllm.publisher("policy", modle="m")
gpuwm.vllm.Workre
client.swap("llama")
client.set_alias("llama", "canary", 4)
client.retire("llama@v1", wait="60")
job.wait(timeout=3)
w.tensor("a")
w["a"].tourch()
w.infos()[0].dtipe


async def awaits() -> None:
    await gpuwm.attach("llama")
    await client.list()
    for event in gpuwm.events():
        event.knid
    async with gpuwm.files("pipeline@prod"):
        pass
"""

# An example needs it; the tests' environments do not have it.
DIFFUSERS = """
class DDIMScheduler:
    @classmethod
    def from_pretrained(cls, path: str, *, subfolder: str | None = None) -> "DDIMScheduler":
        raise NotImplementedError
"""


def environment(*folders: pathlib.Path) -> dict[str, str]:
    paths = [*map(str, folders), *sys.path, sysconfig.get_path("purelib")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def needed(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"needs {program}")
    return found


def test_all_types_are_known() -> None:
    asked = ("--verifytypes", "gpuwm", "--ignoreexternal", "--outputjson")
    found = subprocess.run(
        [needed("basedpyright"), *asked, "--pythonpath", sys.executable],
        env=environment(),
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


# ---- the documents' examples -------------------------------------------------------------------

Reported = dict[tuple[str, int], str]  # by module and line


def by_mypy(folder: pathlib.Path) -> Reported:
    """With this project's settings, which are strict, after mypy has read all packages: by itself
    this would take a minute of a processor."""
    cache = os.environ.get("GPUWM_MYPY_CACHE")
    if cache is None:
        pytest.skip("tests/python.sh BUILD mypy runs it")
    found = subprocess.run(
        [needed("mypy"), "--cache-dir", cache, "--no-error-summary", str(folder)],
        cwd=PACKAGE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode in (0, 1), found.stdout + found.stderr
    lines = re.findall(r"^(.*)\.py:(\d+): error: (.*)$", found.stdout, re.MULTILINE)
    return {(pathlib.Path(path).stem, int(line)): text for path, line, text in lines}


def by_pyright(folder: pathlib.Path) -> Reported:
    settings = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(PACKAGE)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    found = subprocess.run(
        [needed("basedpyright"), "--outputjson", "--pythonpath", sys.executable],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    told: list[dict[str, Any]] = json.loads(found.stdout)["generalDiagnostics"]
    return {
        (pathlib.Path(each["file"]).stem, each["range"]["start"]["line"] + 1): each["message"]
        for each in told
        if each["severity"] == "error"
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Has all examples, and the mistakes: each checker runs once."""
    made = tmp_path_factory.mktemp("pages")
    shutil.copy(READER, made)
    (made / "diffusers.py").write_text(DIFFUSERS)
    (made / "mistakes.py").write_text(MISTAKES)
    for name, source in pages.modules().items():
        (made / f"{name}.py").write_text(source)
    return made


@pytest.fixture(scope="module", params=[by_mypy, by_pyright])
def reported(request: pytest.FixtureRequest, folder: pathlib.Path) -> Reported:
    found: Reported = request.param(folder)
    return found


def test_checkers_take_the_documents_examples(reported: Reported) -> None:
    assert {at: text for at, text in reported.items() if at[0] != "mistakes"} == {}


def test_checkers_report_mistakes(reported: Reported) -> None:
    """In every line but those of the frame."""
    lines = enumerate(MISTAKES.splitlines(), 1)
    frame = re.compile(r"$|import |from |async def |    for |        pass")
    wrong = {number: line for number, line in lines if not frame.match(line)}
    missed = [line for number, line in wrong.items() if ("mistakes", number) not in reported]
    assert missed == []


def test_examples_are_found() -> None:
    found = pages.modules()
    assert {"readme", "docs_python", "docs_quick_start", "python_gpuwm___init"} <= set(found)
    said = sum(len(pages.blocks(path.read_text(), "python")) for path in pages.DOCS)
    assert said >= 30
    assert sum(text.count("gpuwm.attach(") for text in found.values()) > 10
