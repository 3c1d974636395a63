"""The console scripts of the programs in gpuwm/bin: each script becomes its program.

This module lies beside the package `gpuwm`, and imports nothing of it: a command must not wait
until Python has imported the package.
"""

import os
import sys

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpuwm", "bin")


def _become(name: str) -> None:
    program = os.path.join(_FOLDER, name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(
            f"{name}: {program} can't be started: {error.strerror}\n"
            "  install gpuwm-client's wheel for this machine again, or gpuwm's packages"
        )


def gpuwmd() -> None:
    _become("gpuwmd")


def gpuwmctl() -> None:
    _become("gpuwmctl")


def gpuwm_keeper() -> None:
    _become("gpuwm-keeper")


def gpuwm_follow() -> None:
    _become("gpuwm-follow")
