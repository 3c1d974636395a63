"""A worker that generates over HTTP, and follows its model's alias while it does.

    http_worker.py llama@prod 8000
    curl -d '{"ids": [1, 2, 3]}' localhost:8000

`gpuwmctl swap llama v2 --alias prod` changes what it answers, in between two answers.
"""

import argparse
import json
import math
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

import gpuwm.transformers


class Served:
    """Whoever has the lock has the model: nobody computes while it changes."""

    def __init__(self, ref: str) -> None:
        self.ref = ref
        self.lock = threading.Lock()
        # Before attaching: no swap is missed. It waits for ever for a gpuwmd that went away.
        self.events = gpuwm.connect(restart=math.inf).events().open()
        self.attach()
        threading.Thread(target=self.follow, daemon=True).start()

    def attach(self) -> None:
        self.mapping = gpuwm.attach(self.ref, wait=60)
        self.model: Any = gpuwm.transformers.from_pretrained(self.mapping)

    def follow(self) -> None:
        for event in self.events:
            if event.kind in ("swapped", "lost") and event.model in (
                "",
                self.mapping.version.model,
            ):
                try:
                    self.renew()
                    print(f"serves {self.mapping.version}", flush=True)
                except gpuwm.Error as error:  # the alias was removed, say: until the next swap
                    print(f"serves {self.mapping.version} still: {error}", flush=True)

    def renew(self) -> None:
        with self.lock:
            try:
                self.mapping.switch()  # at the same addresses; the model stays as it is
            except gpuwm.Mismatch:  # another layout: another model
                self.attach()

    def answer(self, ids: list[int]) -> dict[str, Any]:
        with self.lock:
            prompt = torch.tensor([ids], device=self.model.device)
            made = self.model.generate(prompt, max_new_tokens=8, do_sample=False)
            return {"version": str(self.mapping.version), "ids": made[0, len(ids) :].tolist()}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(served.answer(asked["ids"])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Answers are not logged."""


parser = argparse.ArgumentParser(usage="%(prog)s REF PORT")
parser.add_argument("ref")
parser.add_argument("port", type=int)
arguments = parser.parse_args()

served = Served(arguments.ref)
server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
print(f"serves {served.mapping.version} at port {server.server_port}", flush=True)
server.serve_forever()
