"""The C library: none, an old one, the right one; and that its structures are known."""

from __future__ import annotations

import ctypes
import inspect
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest

import gpuwm
from gpuwm import _needs, errors
from gpuwm._c import abi, abi_blocks, abi_region, dtypes, lib
from gpuwm.transport import regions

ROOT = pathlib.Path(__file__).parents[2]
HEADER = ROOT / "include/gpuwm/client.h"
SYMBOLS = ROOT / "packaging/debian/libgpuwm-client0.symbols"


def compiled(tmp_path: pathlib.Path, source: str, *flags: str) -> pathlib.Path:
    (tmp_path / "source.c").write_text(source)
    out = tmp_path / "compiled"
    command = [os.environ.get("CC", "gcc"), *flags, f"-I{ROOT}/include", "-o", str(out)]
    subprocess.run([*command, str(tmp_path / "source.c")], check=True)
    return out


def attach_with(library: str | pathlib.Path) -> str:
    """What a process says that attaches with this library."""
    code = """
import gpuwm
try:
    gpuwm.attach("any")
except gpuwm.LibraryError as error:
    print(error)
"""
    environment = {**os.environ, "GPUWM_LIBRARY": str(library)}
    if not library:
        del environment["GPUWM_LIBRARY"]
        environment.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout


def old_library(tmp_path: pathlib.Path, version: str) -> str:
    source = f'const char *gpuwm_library_version(void) {{ return "{version}"; }}'
    return attach_with(compiled(tmp_path, source, "-shared", "-fPIC"))


def test_an_old_library_says_which_is_needed(tmp_path: pathlib.Path) -> None:
    said = old_library(tmp_path, "0.0.9")
    assert re.search(
        r"compiled is libgpuwm-client 0\.0\.9; .* gpuwm 0\.1\.0 needs 0\.1\.0 or", said
    )


def test_a_library_without_a_function_says_which(tmp_path: pathlib.Path) -> None:
    said = old_library(tmp_path, "0.1.0-rc1")
    assert "is libgpuwm-client 0.1.0-rc1 and has no gpuwm_" in said


def test_another_library_is_none(tmp_path: pathlib.Path) -> None:
    said = attach_with(compiled(tmp_path, "int other;", "-shared", "-fPIC"))
    assert "is not libgpuwm-client" in said


@pytest.mark.parametrize("given", ["/nonexistent/lib.so", ""])
def test_no_library_says_what_to_do(given: str) -> None:
    said = attach_with(given)
    assert "libgpuwm-client can't be opened: " in said
    assert "or set GPUWM_LIBRARY to its file" in said


def test_importing_needs_neither_torch_nor_numpy_nor_a_library() -> None:
    """Nor what takes long to import."""
    without = {"torch", "numpy", "ml_dtypes", "asyncio", "ssl", "concurrent", "random"}
    code = (
        "import sys; before = set(sys.modules)\n"  # what an environment's .pth files import
        f"import gpuwm; print(sorted({without} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GPUWM_LIBRARY": "/nonexistent"},
    )
    assert done.stdout == "[]\n"


def test_the_versions_are_one() -> None:
    header = HEADER.read_text()
    parts = [
        re.search(rf"define GPUWM_VERSION_{part} (\d+)", header)
        for part in ("MAJOR", "MINOR", "PATCH")
    ]
    assert gpuwm.__version__ == ".".join(part.group(1) for part in parts if part)


# The header's name for each structure.
STRUCTURES = {
    "ErrorText": "gpuwm_error",
    "LostLease": "gpuwm_lost",
    "VersionInfo": "gpuwm_version_info",
}
HEADERS = {abi: "client.h", abi_region: "region.h", abi_blocks: "blocks.h"}


@pytest.mark.parametrize("module", HEADERS, ids=lambda module: HEADERS[module])
def test_structures_are_the_headers(module: types.ModuleType, tmp_path: pathlib.Path) -> None:
    lines, expected = [], []
    for name, kind in inspect.getmembers(module, inspect.isclass):
        if not issubclass(kind, ctypes.Structure):
            continue
        c = STRUCTURES.get(name) or "gpuwm_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        # Those that tell their size may lack what the header has got since.
        if kind._fields_[0][0] != "size":
            lines.append(f'printf("{c} %zu\\n", sizeof(struct {c}));')
            expected.append(f"{c} {ctypes.sizeof(kind)}")
        for field, *_ in kind._fields_:
            lines.append(f'printf("{c}.{field} %zu\\n", offsetof(struct {c}, {field}));')
            expected.append(f"{c}.{field} {getattr(kind, field).offset}")
    source = f"#include <gpuwm/{HEADERS[module]}>\n#include <stdio.h>\nint main(void)\n{{\n"
    program = compiled(tmp_path, source + "\n".join(lines) + "\n}\n")
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == expected
    assert len(expected) > 10


def test_every_kind_of_region_has_its_words() -> None:
    text = (HEADER.parent / "region.h").read_text()
    (listed,) = re.findall(r"^enum gpuwm_region_kind \{(.*?)^\}", text, re.M | re.S)
    kinds = re.findall(r"^\tGPUWM_REGION_(\w+),", listed, re.M)
    assert [getattr(abi_region, kind, None) for kind in kinds] == list(range(len(kinds)))
    assert sorted(regions.KINDS) == list(range(len(kinds)))


@pytest.mark.skipif(not SYMBOLS.exists(), reason="packaging/ is not here")
def test_the_debian_package_lists_the_functions_of_the_library() -> None:
    done = subprocess.run(
        ["nm", "-D", "--defined-only", lib.load()._name], capture_output=True, text=True, check=True
    )
    exported = re.findall(r" T (gpuwm_\w+)", done.stdout)
    listed = re.findall(r"^ (gpuwm_\w+)@", SYMBOLS.read_text(), re.M)
    assert sorted(listed) == sorted(exported)
    assert len(listed) > 100


def test_dtypes_are_the_librarys() -> None:
    library = lib.load()
    for code in range(1, 64):
        name = lib.text(library.gpuwm_dtype_name(code))
        if not name:
            assert code == max(dtypes.BY_CODE) + 1
            break
        assert dtypes.of(code).name == name
        elements, nbytes = ctypes.c_uint32(), ctypes.c_uint32()
        lib.check(library.gpuwm_dtype_block(code, ctypes.byref(elements), ctypes.byref(nbytes)))
        row = dtypes.of(code)
        assert (row.elements, row.nbytes) == (elements.value, nbytes.value)
        has_bits = library.gpuwm_dtype_bits(code) > 0
        assert has_bits == (name not in dtypes.GGUF)
    with pytest.raises(gpuwm.Unsupported, match="this gpuwm knows no dtype 99"):
        dtypes.of(99)


def test_errors_tell_and_travel() -> None:
    import pickle

    error = errors.TimedOut("it did not come", "wait longer", name="ETIMEDOUT")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is errors.TimedOut
    assert (str(again), again.code, again.name) == (str(error), error.code, "ETIMEDOUT")
    assert str(error) == "it did not come: wait longer"
    assert isinstance(error, TimeoutError)
    assert str(errors.NoTensor("there is none")) == "there is none"
    assert (
        str(errors.Mismatch("they differ:\n  a", "\nbind anew")) == "they differ:\n  a\nbind anew"
    )


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(None, 0), (0, 0), (0.0001, 1), (1.5, 1500), (float("inf"), -1)]
)
def test_waits_are_seconds(seconds: float | None, milliseconds: int) -> None:
    assert lib.milliseconds(seconds, "wait") == milliseconds


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_waits_that_can_not_be_meant(seconds: float) -> None:
    with pytest.raises(gpuwm.Invalid, match="wait="):
        lib.milliseconds(seconds, "wait")


def test_the_wheel_has_every_folder_of_the_package() -> None:
    python = pathlib.Path(__file__).parents[1]
    (listed,) = re.findall(r"^packages = \[(.*)\]$", (python / "pyproject.toml").read_text(), re.M)
    folders = {path.parent.relative_to(python) for path in python.glob("gpuwm/**/__init__.py")}
    there = sorted(".".join(folder.parts) for folder in folders)
    assert re.findall(r'"([^"]*)"', listed) == there


def test_the_remedy_installs_what_the_extra_requires() -> None:
    pyproject = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    (listed,) = re.findall(r"^transformers = \[(.*)\]$", pyproject.read_text(), re.M)
    words = [f"'{requirement}'" for requirement in re.findall(r'"([^"]*)"', listed)]
    assert " ".join(["pip install", *words]) == _needs.TRANSFORMERS
