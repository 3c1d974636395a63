"""Entry points, as an engine finds them where distributions are installed."""

from __future__ import annotations

import configparser
import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # which pytest brings

PYTHON = pathlib.Path(__file__).parents[1]
OWN = "gpuwm_client"  # as pip writes the name of gpuwm-client in a file's name


def write(folder: pathlib.Path, name: str, groups: dict[str, dict[str, str]]) -> None:
    """What an installed distribution of this name would have."""
    dist_info = folder / f"{name}-0.dist-info"
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    parser = configparser.ConfigParser()
    parser.read_dict(groups)
    with open(dist_info / "entry_points.txt", "w") as file:
        parser.write(file)


def own() -> dict[str, dict[str, str]]:
    """Those that gpuwm's wheel has."""
    project = tomllib.loads((PYTHON / "pyproject.toml").read_text())["project"]
    return dict(project.get("entry-points", {}))
