"""A plugin of pytest: writes which lines of the package gpuwm ran in this process into the file that MUTANTS_TRACE names."""

import json
import os
import pathlib
import sys
import threading
from types import FrameType
from typing import Any

PACKAGE = os.sep + os.path.join("python", "gpuwm") + os.sep
ran: set[tuple[str, int]] = set()


def _call(frame: FrameType, event: str, value: object) -> Any:
    return _line if PACKAGE in frame.f_code.co_filename else None


def _line(frame: FrameType, event: str, value: object) -> Any:
    ran.add((frame.f_code.co_filename, frame.f_lineno))
    return _line


def pytest_sessionstart() -> None:
    threading.settrace(_call)
    sys.settrace(_call)


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    lines: dict[str, list[int]] = {}
    for path, line in sorted(ran):
        lines.setdefault(path[path.rindex(PACKAGE) + 1 :], []).append(line)
    pathlib.Path(os.environ["MUTANTS_TRACE"]).write_text(json.dumps(lines))
