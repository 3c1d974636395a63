"""Another project's package gpuwm in the folder of ours: our submodules say so."""

from __future__ import annotations

import base64
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from environments import Environment, given_wheel

PACKAGE = pathlib.Path(__file__).parents[1] / "gpuwm"
MODULES = ["builders", "image", "sglang", "transformers", "vllm", "vllm.kv", "vllm.__main__"]
THEIRS = {
    "gpuwm/__init__.py": "__version__ = '2.9.8'\n",
    "gpuwm/weather.py": "def main(): print('rain')\n",
}
EXTENDED = "import pkgutil\n__path__ = pkgutil.extend_path(__path__, __name__)\n"
REMEDY = "run `pip uninstall gpuwm gpuwm-client`, then install gpuwm-client's wheel again"


def listed(name: str, content: bytes) -> str:
    """A line of a RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def record(site: pathlib.Path, distribution: str, *lines: str) -> None:
    folder = site / f"{distribution}.dist-info"
    folder.mkdir()
    (folder / "RECORD").write_text("".join(lines))


def theirs(site: pathlib.Path) -> None:
    for name, content in THEIRS.items():
        (site / name).write_text(content)
    record(site, "gpuwm-2.9.8", *(listed(name, text.encode()) for name, text in THEIRS.items()))


@pytest.fixture
def unpacked(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder on Python's path with our package, and nothing that says how it came there."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "gpuwm", ignore=shutil.ignore_patterns("__pycache__"))
    return site


@pytest.fixture
def site(unpacked: pathlib.Path) -> pathlib.Path:
    """Such a folder, as pip leaves it."""
    init = unpacked / "gpuwm/__init__.py"
    record(unpacked, "gpuwm_client-0.1.0", listed("gpuwm/__init__.py", init.read_bytes()))
    return unpacked


def imported(module: str, *path: pathlib.Path) -> str:
    """What the import of a module says, with these folders on Python's path; empty: it works."""
    done = subprocess.run(
        [sys.executable, "-c", f"import gpuwm.{module}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        cwd="/",  # the folder comes first on Python's path
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr.strip()


@pytest.mark.parametrize("module", MODULES)
def test_their_package_instead_of_ours_is_said(module: str, site: pathlib.Path) -> None:
    theirs(site)
    said = imported(module, site).splitlines()[-1]
    assert said == (
        "gpuwm._installation.Overwritten: gpuwm-client 0.1.0 is damaged: "
        f"{site}/gpuwm/__init__.py is another file than was installed. gpuwm 2.9.8, another "
        f"project's distribution, has files in the same folder: {REMEDY}; "
        "if you need both projects, make an environment for each"
    )


def test_what_their_uninstallation_removed_is_said(site: pathlib.Path) -> None:
    (site / "gpuwm/__init__.py").unlink()
    said = imported("vllm", site)
    assert f"gpuwm-client 0.1.0 is damaged: {site}/gpuwm/__init__.py is missing. Another" in said
    assert REMEDY in said


def test_their_package_that_ours_is_added_to_is_said(
    site: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    other = tmp_path / "other/gpuwm/__init__.py"
    other.parent.mkdir(parents=True)
    other.write_text(EXTENDED)
    said = imported("vllm", tmp_path / "other", site)
    assert f"`import gpuwm` found {other} instead of {site}/gpuwm/__init__.py" in said


def test_ours_after_theirs_works(site: pathlib.Path) -> None:
    record(site, "gpuwm-2.9.8", listed("gpuwm/__init__.py", b""))
    assert imported("vllm", site) == ""


def test_a_record_that_an_older_installation_left_harms_nothing(site: pathlib.Path) -> None:
    record(site, "gpuwm_client-0.0.9", listed("gpuwm/__init__.py", b""))
    assert imported("vllm", site) == ""


def test_a_source_tree_has_no_record(unpacked: pathlib.Path) -> None:
    with open(unpacked / "gpuwm/__init__.py", "a") as file:
        file.write("CHANGED = True\n")
    assert imported("vllm", unpacked) == ""


def test_the_record_of_an_editable_installation_lists_no_package(unpacked: pathlib.Path) -> None:
    record(unpacked, "gpuwm_client-0.1.0", listed("__editable__.gpuwm_client-0.1.0.pth", b"/src"))
    with open(unpacked / "gpuwm/__init__.py", "a") as file:
        file.write("CHANGED = True\n")
    assert imported("vllm", unpacked) == ""


# ---- the wheel, and a made-up one of theirs, by pip ----------------------------------------------


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, pathlib.Path]:
    """Ours, and a wheel gpuwm 2.9.8 with a package and a console script of that name."""
    info = "gpuwm-2.9.8.dist-info"
    files = {
        **THEIRS,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: gpuwm\nVersion: 2.9.8\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ngpuwm = gpuwm.weather:main\n",
    }
    files[f"{info}/RECORD"] = "".join(listed(name, text.encode()) for name, text in files.items())
    made = tmp_path_factory.mktemp("theirs") / "gpuwm-2.9.8-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return {"ours": given_wheel(), "theirs": made}


ENTRY_POINT = """
import importlib.metadata
(found,) = importlib.metadata.entry_points(group="{}")
print(found.load().__name__)
"""
SAYS = {
    "import gpuwm.vllm; print('register')": "register",
    "import gpuwm.sglang; print('register')": "register",
    "import gpuwm.transformers": "gpuwm.errors.NotInstalled: gpuwm.transformers needs torch",
    "import gpuwm.image": "gpuwm.errors.NotInstalled: gpuwm.image needs torch",
    ENTRY_POINT.format("vllm.general_plugins"): "register",
    ENTRY_POINT.format("sglang.srt.plugins"): "register",
}


@pytest.fixture
def environment(tmp_path: pathlib.Path) -> Environment:
    return Environment(tmp_path / "venv")


def test_theirs_after_ours_is_said_and_the_remedy_helps(
    environment: Environment, wheels: dict[str, pathlib.Path]
) -> None:
    environment.pip("install", "--no-index", wheels["ours"])
    environment.pip("install", "--no-index", wheels["theirs"])
    for code in SAYS:
        said = environment.run(code)
        assert said.startswith("gpuwm._installation.Overwritten: gpuwm-client "), said
        assert "gpuwm/__init__.py is another file than was installed. gpuwm 2.9.8, another" in said
    said = environment.doctor()
    assert said.startswith("failed: gpuwm-client ")
    assert "is damaged: gpuwm/__init__.py has 22 bytes, and " in said
    assert "gpuwm 2.9.8, another project's" in said
    environment.pip("uninstall", "-y", "gpuwm", "gpuwm-client")
    assert environment.doctor().endswith(": the environment has no package gpuwm")
    environment.pip("install", "--no-index", wheels["ours"])
    for code, says in SAYS.items():
        assert environment.run(code).startswith(says)
    assert environment.doctor().startswith("ok: the package gpuwm is that of gpuwm-client ")


def test_ours_after_theirs_works_until_theirs_is_uninstalled(
    environment: Environment, wheels: dict[str, pathlib.Path]
) -> None:
    environment.pip("install", "--no-index", wheels["theirs"])
    environment.pip("install", "--no-index", wheels["ours"])
    for code, says in SAYS.items():
        assert environment.run(code).startswith(says)
    assert environment.doctor().startswith("warning: the package gpuwm is that of gpuwm-client ")
    environment.pip("uninstall", "-y", "gpuwm")
    for code in SAYS:
        assert "gpuwm/__init__.py is missing" in environment.run(code)
    assert environment.doctor().endswith("is damaged: gpuwm/__init__.py is missing")
