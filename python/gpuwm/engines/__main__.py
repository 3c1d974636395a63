"""python -m gpuwm.engines: an operator's commands for engines that run."""

from __future__ import annotations

import argparse
import sys

from .. import errors
from . import control


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 after an error, which is printed."""
    found = _parser().parse_args(arguments)
    try:
        if found.command == control.PARK:
            did = control.park(found.engine, found.mode, found.drain)
        else:
            did = control.wake(found.engine)
    except errors.Error as error:
        print(f"gpuwm.engines: {error}", file=sys.stderr)
        return 1
    state = "asleep" if found.command == control.PARK else "awake"
    print(f"{state} after {did['seconds']:.3f} s" if did["did"] else f"{state} already")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwm.engines",
        description="Lets an engine of this machine sleep, so that others have its GPU, and wakes "
        "it again. The engine needs --enable-sleep-mode, --worker-cls gpuwm.vllm.Worker and "
        "--middleware gpuwm.vllm.Control.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        (control.PARK, "frees the KV cache, and parks the weights; requests that come wait"),
        (control.WAKE, "takes both again; requests go on"),
    ):
        command = commands.add_parser(name, help=text, description=f"{name}: {text}.")
        command.add_argument(
            "engine", metavar="URL|PID", help="http://localhost:8000, or its API server's pid"
        )
        if name == control.PARK:
            command.add_argument(
                "--mode",
                choices=control.MODES,
                default=control.KEEP,
                help="requests in flight go on after the wake (keep, the default), end first "
                "(wait), or are aborted (abort)",
            )
            command.add_argument(
                "--drain",
                type=float,
                metavar="SECONDS",
                help=f"how long to wait for them (default and most: {control.DRAIN_S:g})",
            )
    return parser


if __name__ == "__main__":
    sys.exit(main())
