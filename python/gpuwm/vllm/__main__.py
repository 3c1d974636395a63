"""python -m gpuwm.vllm: commands for running engines."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from typing import Any

from .. import errors
from . import serving_arguments
from ._switch import DRAIN_S, Switched, switch
from .follow import follow
from .takeover import DRAIN_S as TAKEOVER_DRAIN_S
from .takeover import takeover
from .targets import FINISH, KEEP

INTERRUPTED = 130  # the exit status of a shell
_Commands = Any  # argparse has no public name for what add_subparsers returns


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0; 1 after an error, which is printed; 130 after Ctrl-C or
    SIGTERM."""
    parser = _parser()
    found, rest = parser.parse_known_args(arguments)
    if rest and found.command != "standby":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    try:
        if found.command == "standby":
            command = serving_arguments.command(found.lock, rest)
            os.execv(command[0], command)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that a switch goes back
        if found.command == "takeover":
            takeover(found.lock, found.drain, lambda line: print(line, flush=True))
        else:
            _move(found)
    except errors.Error as error:
        print(f"gpuwm.vllm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _move(found: argparse.Namespace) -> None:
    """Moves an engine to other weights: the commands switch and follow."""
    options = {"mode": found.mode, "verify": not found.no_verify, "drain": found.drain}
    if found.command == "switch":
        _print(switch(found.url, found.ref, take_over=found.take_over, **options))
        return
    if found.socket:
        os.environ["GPUWM_SOCKET"] = found.socket
    print(f"{found.url} follows {found.ref}", flush=True)
    follow(found.url, found.ref, on_switch=_print, **options)


def _print(switched: Switched) -> None:
    if not switched.moved:
        print(f"on {switched.version} ({switched.id}) already", flush=True)
        return
    times = ", ".join(f"{what} {1e3 * s:.1f} ms" for what, s in switched.seconds.items())
    print(f"{switched.before} -> {switched.version} ({switched.id}): {times}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwm.vllm",
        description="switch and follow move a running vLLM server to other weights. The server "
        "needs VLLM_SERVER_DEV_MODE=1 in its environment and --worker-extension-cls "
        "gpuwm.vllm.Extension. standby and takeover are for groups of servers of which one is "
        "active and the others take over when it dies.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_switching(commands)
    _add_standing_by(commands)
    return parser


def _add_switching(commands: _Commands) -> None:
    for name, text in (
        ("switch", "to one version, once"),
        ("follow", "to what an alias names, now and whenever it moves"),
    ):
        command = commands.add_parser(name, help=text, description=f"Switches a server {text}.")
        command.add_argument("url", metavar="URL", help="http://localhost:8000")
        command.add_argument("ref", metavar="REF", help="llama@v2, llama@prod")
        command.add_argument(
            "--mode",
            choices=(KEEP, FINISH),
            default=KEEP,
            help="requests in flight go on with the new weights (keep), or end first (finish)",
        )
        command.add_argument(
            "--drain",
            type=float,
            metavar="SECONDS",
            help=f"how long to wait for them with finish (default and most: {DRAIN_S:g})",
        )
        command.add_argument(
            "--no-verify", action="store_true", help="do not read the new version's bytes again"
        )
        if name == "follow":
            command.add_argument(
                "--socket", help="gpuwmd's, to hear of aliases (default: $GPUWM_SOCKET)"
            )
        else:
            command.add_argument(
                "--take-over",
                action="store_true",
                help="although another switch has not ended, since its caller is dead; resumes the "
                "engine",
            )


def _add_standing_by(commands: _Commands) -> None:
    lock = {"required": True, "metavar": "PATH", "help": "the group's lock: /run/llama/lock"}
    command = commands.add_parser(
        "standby",
        help="an engine that is active, or takes over when the active one dies",
        usage="python -m gpuwm.vllm standby --lock PATH MODEL [ARGUMENT OF vllm serve ...]",
        description="Starts an engine of a group. The first one is active. Another one has its "
        "graphs captured, and no memory for its KV cache until it takes over. Until then its "
        "/health answers 503.",
        allow_abbrev=False,
    )
    command.add_argument("--lock", **lock)
    command = commands.add_parser(
        "takeover",
        help="ends the active engine, so that a standby takes over",
        description="Ends the active engine, also one that hangs, and waits until another engine "
        "of the group has taken over.",
    )
    command.add_argument("--lock", **lock)
    command.add_argument(
        "--drain",
        type=_seconds,
        default=TAKEOVER_DRAIN_S,
        metavar="SECONDS",
        help="how long it may take to end in order, before it is killed; 0: it is killed at once "
        "(default: %(default)g)",
    )


def _seconds(text: str) -> float:
    value = float(text)
    if 0 <= value < float("inf"):
        return value
    raise ValueError


if __name__ == "__main__":
    sys.exit(main())
