"""python -m gpuwm.vllm: engines that run, from a shell."""

from __future__ import annotations

import argparse
import logging
import sys

from .. import errors
from .follow import follow
from .switching import Switched, switch
from .targets import FINISH, KEEP

INTERRUPTED = 130  # as a shell has it


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, 1 after an error, which is printed, 130 after Ctrl-C."""
    found = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    options = {"mode": found.mode, "verify": not found.no_verify, "drain": found.drain}
    try:
        if found.command == "follow":
            follow(found.url, found.ref, told=_tell, **options)
        else:
            _tell(switch(found.url, found.ref, **options))
    except errors.Error as error:
        print(f"gpuwm.vllm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _tell(switched: Switched) -> None:
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
            "--drain", type=float, metavar="SECONDS", help="how long to wait for them; any time"
        )
        command.add_argument(
            "--no-verify", action="store_true", help="do not read the new version's bytes again"
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
