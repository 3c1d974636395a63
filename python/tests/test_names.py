"""Nothing sends users to PyPI's gpuwm, another project's package; scripts/names sees what would."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
from conftest import DEVICE

pytest.importorskip("tomllib")
ROOT = pathlib.Path(__file__).parents[2]
NAMES = ROOT / "scripts" / "names"
# The bundle for GPU machines is no repository. What the files say depends on no kind of memory.
pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or DEVICE != "cpu", reason="no repository, or it is looked at"
)
THEIRS = "gpuwm"  # apart from the words around it, or scripts/names would find these lines here


def names(folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, NAMES, folder], check=False, capture_output=True, text=True
    )


def said_of(tmp_path: pathlib.Path, path: str, text: str) -> str:
    """What the script says of a repository with this one file."""
    place = tmp_path / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    done = names(tmp_path)
    assert done.returncode == (1 if done.stderr else 0)
    return done.stderr


def test_nothing_here_means_their_package() -> None:
    done = names(ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "line",
    [
        "Run `pip install {}`, then go on.",
        "pip3 install -U '{}'",
        'python -m pip install --user "{}[torch]"',
        "uv pip install torch {}",
        "uv add {}",
        "RUN pip install \\\n    torch \\\n    {} && ldconfig",
        '["pip", "install", "{}"]',
        'raise no_torch("install {}[transformers]")',
        'NEEDED = ["torch", "{}>=0.1"]',
        "{} == 0.1.0",
        "{} @ file:///tmp/a.whl",
    ],
)
@pytest.mark.parametrize("path", ["README.md", "python/code.py"])
def test_what_installs_it_is_found(path: str, line: str, tmp_path: pathlib.Path) -> None:
    said = said_of(tmp_path, path, "The first line.\n" + line.format(THEIRS) + "\n")
    assert said.startswith(f"{path}:2: ")
    assert "another project" in said
    assert said.count("\n") == 1


def test_a_list_of_requirements_is_read(tmp_path: pathlib.Path) -> None:
    said = said_of(tmp_path, "requirements.txt", f"torch==2.13.0\n{THEIRS}\n")
    assert said.startswith("requirements.txt:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "pip install build/wheel/dist/{}_client-*.whl",
        "pip install {}-client",
        "Install the wheel with `pip install build/{}_client-1.whl`. The import name is `{}`.",
        "apt install ./{}_0.1.0_amd64.deb; pip list; {} serves",
        "pip install torch; {}ctl doctor",
        "Run `pip uninstall {}`, then install {}'s wheel.",
        "The package {} on PyPI is another project's.",
        "log.{}[-1]",
    ],
)
def test_what_is_ours_may_be_named(line: str, tmp_path: pathlib.Path) -> None:
    assert said_of(tmp_path, "README.md", line.replace("{}", THEIRS)) == ""


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("[project]\nname = 'NAME'", "the distribution has the name"),
        ("[project.scripts]\nNAME = 'a:b'", "the console script NAME"),
        ("[project.gui-scripts]\nNAME = 'a:b'", "the console script NAME"),
        ("[project.entry-points.console_scripts]\nNAME = 'a:b'", "the console script NAME"),
        ("[project]\ndependencies = ['NAME']", "it requires NAME"),
        ("[project.optional-dependencies]\nall = ['NAME']", "it requires NAME"),
    ],
)
def test_no_project_takes_their_names(declared: str, says: str, tmp_path: pathlib.Path) -> None:
    said = said_of(tmp_path, "python/pyproject.toml", declared.replace("NAME", THEIRS))
    assert said.startswith(f"python/pyproject.toml: {says.replace('NAME', THEIRS)}")


def test_entry_points_of_engines_may_have_it(tmp_path: pathlib.Path) -> None:
    declared = f"[project.entry-points.'vllm.general_plugins']\n{THEIRS} = '{THEIRS}.vllm:register'"
    assert said_of(tmp_path, "pyproject.toml", declared) == ""
