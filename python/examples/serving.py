"""A worker behind a load balancer: no request is lost when the version changes, nor when it ends.

    serving.py llama@prod 127.0.0.1:8000 &
    serving.py llama@prod 127.0.0.1:8001 &
    gpuwm-follow --backend llama@prod=workers --haproxy /run/haproxy/gpuwm-follow.sock

It announces its address with its lease, so gpuwm-follow(8) has the load balancer send requests
there. After `gpuwmctl swap llama v2 --alias prod` it puts the new version at the same addresses,
between two answers; with --stay it keeps the version that it has, and drains. SIGTERM ends it: it
withdraws its address, serves on until requests have ceased to come, and leaves.
"""

import argparse
import json
import math
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import gpuwm

QUIET_S = 1.0  # a load balancer that heard of the withdrawal sends nothing for so long


class Served:
    """Whoever has the lock has the version: nobody reads it while it changes."""

    def __init__(self, ref: str) -> None:
        self.lock = threading.Lock()
        # Before attaching: no swap is missed. It waits for ever for a gpuwmd that went away.
        self.events = gpuwm.connect(restart=math.inf).events().open()
        self.mapping = gpuwm.attach(ref, wait=60)
        self.last = time.monotonic()  # when the last answer was made

    def follow(self) -> None:
        for event in self.events:
            if event.kind not in ("swapped", "lost"):
                continue
            if event.model in ("", self.mapping.version.model):
                self.renew()

    def renew(self) -> None:
        try:
            with self.lock:
                version = self.mapping.switch()
            print(f"serves {version}", flush=True)
        except gpuwm.Error as error:  # another layout, say: a load balancer takes the others
            print(f"serves {self.mapping.version} still: {error}", flush=True)

    def answer(self) -> dict[str, Any]:
        with self.lock:
            self.last = time.monotonic()
            name = next(iter(self.mapping))  # a model would compute something here
            return {"version": str(self.mapping.version), "tensor": name, "pid": os.getpid()}

    def leave(self) -> None:
        self.mapping.announce(None)
        withdrawn = time.monotonic()
        while time.monotonic() - max(self.last, withdrawn) < QUIET_S:
            time.sleep(QUIET_S / 10)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open
    wbufsize = -1  # an answer is one packet

    def do_GET(self) -> None:
        body = json.dumps(served.answer()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Answers are not logged."""


class Server(ThreadingHTTPServer):
    daemon_threads = True  # connections that are open do not keep the process
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A load balancer that ends a connection is no error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


parser = argparse.ArgumentParser(usage="%(prog)s [--stay] REF HOST:PORT")
parser.add_argument("ref")
parser.add_argument("address", help="where to listen, which is also what is announced")
parser.add_argument("--stay", action="store_true", help="keep the version after a swap")
arguments = parser.parse_args()

served = Served(arguments.ref)
host, _, port = arguments.address.rpartition(":")
server = Server((host, int(port)), Handler)
address = f"{host}:{server.server_port}"
leaving = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: leaving.set())

threading.Thread(target=server.serve_forever, daemon=True).start()
served.mapping.announce(address)  # it listens already
if not arguments.stay:
    threading.Thread(target=served.follow, daemon=True).start()
print(f"serves {served.mapping.version} at {address}", flush=True)
leaving.wait()
served.leave()
server.shutdown()
served.mapping.close()
print("left", flush=True)
