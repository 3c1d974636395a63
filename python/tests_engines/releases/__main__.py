"""Reads releases of vLLM and SGLang from their wheels, and says what of gpuwm's plugins fits them.

    scripts/engines                    today's release: reads its wheel again, and compares
    scripts/engines read RELEASE...    writes the facts of releases, and says what does not fit
    scripts/engines check              says what does not fit the releases whose facts are committed
    scripts/engines table              writes the tables of docs/engines/releases.md

RELEASE: vllm==0.33.0, sglang==0.5.23, a file .whl, or "all", which are all whose facts are
committed. No engine is installed or run. Of a wheel only texts are kept, in build/engines.

The status is 1 if something does not fit: a name that the plugin imports or hooks is gone, a method
that it overrides takes other arguments, an argument or an environment variable of the engine is
in neither of the plugin's lists. It is 77 if the package index does not give today's wheel.
"""

from __future__ import annotations

import argparse
import datetime
import difflib
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Sequence

from . import facts, problems, table, wheels
from .plugin import Plugin

SKIPPED = 77
DIFFERENCES_MAX = 60  # lines


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        "scripts/engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what", nargs="?", default="today", choices=["today", "read", "check", "table"]
    )
    parser.add_argument("release", nargs="*")
    parser.add_argument("--facts", type=pathlib.Path, default=facts.FOLDER, help="their folder")
    parser.add_argument("--cache", type=pathlib.Path, default=wheels.CACHE, help="of texts")
    parser.add_argument(
        "--plugin", type=pathlib.Path, help="our plugin, if not python/gpuwm/ENGINE"
    )
    chosen = parser.parse_args(words)
    if (chosen.what == "read") != bool(chosen.release):
        parser.error('only "read" takes releases, and it needs one')
    try:
        if chosen.what == "today":
            return today(chosen.facts)
        if chosen.what == "read":
            return read(chosen.release, chosen.facts, chosen.cache, chosen.plugin)
        if chosen.what == "check":
            return check(chosen.facts)
    except wheels.NoAnswer as error:
        # A package index that does not answer is no fault of the plugins.
        print(f"{'skipped' if chosen.what == 'today' else 'FAIL'}: {error}")
        return SKIPPED if chosen.what == "today" else 1
    except wheels.Unreadable as error:
        print(f"FAIL: {error}")
        return 1
    table.DOCUMENT.write_text(table.written(table.DOCUMENT.read_text()))
    return 0


def today(folder: pathlib.Path, day: int | None = None) -> int:
    """Reads one release again, which the day of the year chooses."""
    releases = [each for engine in table.FEATURES for each in facts.committed(engine, folder)]
    day = datetime.date.today().timetuple().tm_yday if day is None else day
    old = releases[day % len(releases)]
    wheels.CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=wheels.CACHE, prefix="today.") as scratch:
        texts = wheels.obtain(old.engine, old.release, pathlib.Path(scratch))
    new = facts.collect(texts, Plugin(old.engine))
    if new == old:
        print(f"{old.title}: its wheel has what is committed")
        return 0
    lines = list(difflib.unified_diff(old.text().split("\n"), new.text().split("\n"), n=0))
    print(f"FAIL: {old.title}: the wheel or our plugin has changed: scripts/engines read all")
    print("\n".join(line for line in lines[2 : DIFFERENCES_MAX + 2] if not line.startswith("@@")))
    return 1


def read(
    releases: Iterable[str], folder: pathlib.Path, cache: pathlib.Path, own: pathlib.Path | None
) -> int:
    """Writes the facts of these releases, and says what does not fit, and what is new."""
    failed = False
    for engine, release in _named(releases, folder, cache):
        plugin = Plugin(engine, own)
        new = facts.collect(wheels.obtain(engine, release, cache), plugin)
        before = [
            each
            for each in facts.committed(engine, folder)
            if facts.order(each.release) < facts.order(release)
        ]
        folder.mkdir(parents=True, exist_ok=True)
        facts.file_of(engine, release, folder).write_text(new.text())
        failed = _told(new, plugin, before[-1] if before else None) or failed
    return int(failed)


def _named(
    releases: Iterable[str], folder: pathlib.Path, cache: pathlib.Path
) -> list[tuple[str, str]]:
    found = []
    for each in releases:
        if each == "all":
            known = [one for engine in table.FEATURES for one in facts.committed(engine, folder)]
            found += [(one.engine, one.release) for one in known]
        elif each.endswith(".whl"):
            kept = wheels.read(wheels.keep(pathlib.Path(each), cache))
            found.append((kept.engine, kept.release))
        else:
            engine, _, release = each.partition("==")
            found.append((engine, release))
    for engine, release in found:
        if engine not in table.FEATURES or not release:
            raise wheels.Unreadable(f'"{engine}=={release}" is no release of vLLM or SGLang')
    return found


def check(folder: pathlib.Path) -> int:
    failed = False
    for engine in table.FEATURES:
        for each in facts.committed(engine, folder):
            failed = _told(each, Plugin(engine), None) or failed
    return int(failed)


def _told(new: facts.Facts, plugin: Plugin, old: facts.Facts | None) -> bool:
    """Prints the report of a release. Returns whether something does not fit."""
    found = problems.of(new, plugin)
    row = ", ".join(f"{name}: {cell}" for name, cell in table.cells(new, plugin, found).items())
    print(f"{new.title}, built {new.built}, torch {new.torch}: {row}")
    for text in problems.texts(found):
        print(f"FAIL: {text}")
    if old is not None:
        for line in changes(old, new):
            print(f"   since {old.release}: {line}")
    return bool(found)


def changes(old: facts.Facts, new: facts.Facts) -> list[str]:
    """What a release has that the one before it has not, and the other way round."""
    both = {
        "seam": [{name for name, has in each.seams.items() if has} for each in (old, new)],
        "function that writes weights": [set(each.updates) for each in (old, new)],
        "argument": [
            {f"{owner}.{name}" for owner, names in each.arguments.items() for name in names}
            for each in (old, new)
        ],
        "variable": [set(each.variables) for each in (old, new)],
    }
    found = []
    for what, (before, after) in both.items():
        found += [f"{what} is gone: {name}" for name in sorted(before - after)]
        found += [f"{what} is new: {name}" for name in sorted(after - before)]
    for name in sorted(old.names.keys() & new.names.keys()):
        if old.names[name] != new.names[name]:
            found.append(f"{name}: {old.names[name]} -> {new.names[name]}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
