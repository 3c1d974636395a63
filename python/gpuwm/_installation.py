"""Whether this folder is as gpuwm-client, our distribution, installed it.

The distribution that PyPI calls gpuwm is another project's, and has a package `gpuwm`, too. If both
were installed into one environment, the second one has overwritten files of the first one, and
whoever uninstalls one removes files of the other. `import gpuwm` may then run their `__init__.py`,
while our submodules are still here.

So the submodules that users and engines import by their own names import this module first. The
import raises Overwritten if the package's `__init__.py` is not the one that gpuwm-client's RECORD
lists, or if the package that was imported lies in another folder. Where no RECORD beside this
folder lists that file, there is nothing to compare: in a source tree, after an editable
installation, in Debian's package.

This module uses the standard library only, since other modules here may be the other project's.
"""

from __future__ import annotations

import base64
import hashlib
import pathlib
import sys

REMEDY = (
    "run `pip uninstall gpuwm gpuwm-client`, then install gpuwm-client's wheel again; "
    "if you need both projects, make an environment for each"
)


class Overwritten(ImportError):
    """The package gpuwm is not as gpuwm-client installed it."""


def check(folder: pathlib.Path, loaded: str | None) -> None:
    """Raises Overwritten as above. folder: of our package. loaded: the file of the package gpuwm
    that was imported; None if it has none."""
    records = folder.parent.glob("gpuwm_client-*.dist-info/RECORD")
    digests = {record: digest for record in records if (digest := _listed(record))}
    if not digests:
        return
    init = folder / "__init__.py"
    if not init.exists():
        what = f"{init} is missing"
    elif _digest(init) not in digests.values():
        what = f"{init} is another file than was installed"
    elif loaded is None or pathlib.Path(loaded).parent != folder:
        what = f"`import gpuwm` found {loaded} instead of {init}"
    else:
        return
    ours = ", ".join(_name(record) for record in digests)
    raise Overwritten(f"{ours} is damaged: {what}. {_others(folder)}: {REMEDY}")


def _listed(record: pathlib.Path) -> str:
    """The digest that a RECORD has of the package's `__init__.py`; empty if it has none."""
    for line in record.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("gpuwm/__init__.py,"):
            return line.split(",")[1]
    return ""


def _digest(file: pathlib.Path) -> str:
    """The digest of a file, as pip writes it into a RECORD."""
    digest = hashlib.sha256(file.read_bytes()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _name(record: pathlib.Path) -> str:
    """The name and the version of the distribution that has this RECORD."""
    name, _, version = record.parent.name.removesuffix(".dist-info").rpartition("-")
    return f"{name.replace('_', '-')} {version}"


def _others(folder: pathlib.Path) -> str:
    """Which other distributions have files in the folder of our package."""
    found = [
        _name(record)
        for record in sorted(folder.parent.glob("*.dist-info/RECORD"))
        if not record.parent.name.startswith("gpuwm_client-") and _listed(record)
    ]
    if not found:
        return "Another distribution may have had files in that folder"
    return f"{', '.join(found)}, another project's distribution, has files in the same folder"


check(pathlib.Path(__file__).parent, getattr(sys.modules["gpuwm"], "__file__", None))
