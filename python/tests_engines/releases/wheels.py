"""The texts of a wheel. A wheel is read once, one at a time, and of it only texts are kept."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Mapping

ROOT = pathlib.Path(__file__).resolve().parents[3]
CACHE = ROOT / "build" / "engines"
KEPT = (".py", "/METADATA")  # the ends of names
DOWNLOAD_S = 480  # half a gigabyte takes half a minute from a package index nearby


class Unreadable(Exception):
    """A wheel that is torn, or is no wheel of this engine."""


class NoAnswer(Exception):
    """The package index did not give the wheel. What pip said is in the text."""


class Texts:
    """The texts of a wheel by their paths, and the day on which it was built. The engine's package
    has the engine's name."""

    def __init__(self, engine: str, release: str, built: str, texts: Mapping[str, str]) -> None:
        self.engine, self.release, self.built = engine, release, built
        self._texts = texts

    def __contains__(self, path: str) -> bool:
        return path in self._texts

    def __getitem__(self, path: str) -> str:
        return self._texts[path]

    def paths(self) -> Iterable[str]:
        return self._texts.keys()

    def torch(self) -> str:
        """The torch that this release pins: "2.11.0", ">=2.9", or "" if it names none."""
        metadata = self[f"{self.engine}-{self.release}.dist-info/METADATA"]
        found = re.search(r"^Requires-Dist: torch *([<=>~!][^;\n]*?) *$", metadata, re.MULTILINE)
        return "" if found is None else found[1].removeprefix("==")


def read(file: pathlib.Path) -> Texts:
    """The texts of a wheel, or of the file that `kept` has made of one. Raises Unreadable."""
    try:
        with zipfile.ZipFile(file) as wheel:
            entries = [entry for entry in wheel.infolist() if entry.filename.endswith(KEPT)]
            texts = {entry.filename: wheel.read(entry).decode() for entry in entries}
            # pip and other programs that make wheels give each entry the day of the build.
            days = [entry.date_time for entry in wheel.infolist()]
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError) as error:
        raise Unreadable(f"{file.name} is no whole wheel: {error}") from None
    metadata = [re.fullmatch(r"([^/]+)-([^-/]+)\.dist-info/METADATA", path) for path in texts]
    found = [match for match in metadata if match is not None]
    if len(found) != 1 or f"{found[0][1]}/__init__.py" not in texts:
        raise Unreadable(f"{file.name} has no package, or not one METADATA")
    built = "{:04}-{:02}-{:02}".format(*max(days)[:3])
    return Texts(found[0][1], found[0][2], built, texts)


def _kept_in(cache: pathlib.Path, engine: str, release: str) -> pathlib.Path:
    return cache / f"{engine}-{release}.zip"


def keep(wheel: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
    """Writes a zip file of the wheel's texts into the cache, and returns it. Raises Unreadable."""
    texts = read(wheel)
    cache.mkdir(parents=True, exist_ok=True)
    kept = _kept_in(cache, texts.engine, texts.release)
    year, month, day = (int(part) for part in texts.built.split("-"))
    part = kept.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(part, "w") as to:
        for path in texts.paths():
            entry = zipfile.ZipInfo(path, (year, month, day, 0, 0, 0))
            to.writestr(entry, texts[path], zipfile.ZIP_DEFLATED)
    part.replace(kept)
    return kept


def obtain(engine: str, release: str, cache: pathlib.Path = CACHE) -> Texts:
    """The texts of a release: from the cache, or from the wheel that pip downloads, without what
    the wheel requires. The wheel is deleted. Raises NoAnswer and Unreadable."""
    kept = _kept_in(cache, engine, release)
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        folder = pathlib.Path(tempfile.mkdtemp(dir=cache, prefix="wheel."))
        try:
            keep(_download(f"{engine}=={release}", folder), cache)
        finally:
            shutil.rmtree(folder)
    return read(kept)


def _download(what: str, folder: pathlib.Path) -> pathlib.Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-color", "download"]
    options = [
        "--no-deps",
        "--no-cache-dir",
        "--only-binary",
        ":all:",
        "--retries",
        "1",
        "--progress-bar",
        "off",
    ]
    try:
        ran = subprocess.run(
            [*pip, *options, "--dest", os.fspath(folder), what],
            check=False,
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_S,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"pip had not downloaded {what} after {DOWNLOAD_S} s") from None
    found = list(folder.glob("*.whl"))
    if ran.returncode or len(found) != 1:
        said = [line for line in ran.stderr.splitlines() if line.startswith("ERROR")]
        raise NoAnswer(f"pip can't download {what}: {' '.join(said) or ran.stderr.strip()[-300:]}")
    return found[0]
