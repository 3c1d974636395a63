"""python -m gpuwm.vllm: engines that run, from a shell."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from .. import errors
from .follow import follow
from .switching import DRAIN_S, Switched, switch
from .targets import FINISH, KEEP

INTERRUPTED = 130  # as a shell has it


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 after an error, which is printed, 130 after Ctrl-C or SIGTERM."""
    found = _parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which lets a switch go back
    options = {"mode": found.mode, "verify": not found.no_verify, "drain": found.drain}
    try:
        if found.command == "follow":
            if found.socket:
                os.environ["GPUWM_SOCKET"] = found.socket
            print(f"{found.url} follows {found.ref}", flush=True)
            follow(found.url, found.ref, on_switch=_print, **options)
        else:
            _print(switch(found.url, found.ref, take_over=found.take_over, **options))
    except errors.Error as error:
        print(f"gpuwm.vllm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _print(switched: Switched) -> None:
    if not switched.moved:
        print(f"on {switched.version} ({switched.id}) already", flush=True)
        return
    times = ", ".join(f"{what} {1e3 * s:.1f} ms" for what, s in switched.seconds.items())
    print(f"{switched.before} -> {switched.version} ({switched.id}): {times}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwm.vllm",
        description="Switches a running vLLM server to other weights. The server needs "
        "VLLM_SERVER_DEV_MODE=1 in its environment and --worker-extension-cls "
        "gpuwm.vllm.Extension.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
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
    return parser


if __name__ == "__main__":
    sys.exit(main())
