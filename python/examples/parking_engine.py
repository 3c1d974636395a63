"""An engine for gpuwm-serve that needs no GPU and no tokenizer: it answers with numbers of its
weights. It shows what gpuwm-serve wants of an engine that parks.

    python3 parking_engine.py SOCKET NAME VERSION

- It listens at SOCKET, and answers GET /health with 200 when it serves.
- It listens at a socket whose name has its pid, for {"do": "park"} and {"do": "wake"}.
- While it sleeps, requests wait.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import socketserver
import threading
from typing import Any

import gpuwm
from gpuwm.engines import control

WAKE_S = 60.0  # its weights may come from a disk


class Engine:
    """The weights of a version, and whether they are there."""

    def __init__(self, name: str, version: str) -> None:
        self.name = name
        self._weights = gpuwm.attach(version)
        self._first = min(self._weights)
        self._change = threading.Condition()
        self._is_awake, self._busy = True, 0

    def answer(self, count: int) -> str:
        """So many bytes of the first tensor, as numbers."""
        with self._change:
            self._change.wait_for(lambda: self._is_awake)
            self._busy += 1
        try:
            return " ".join(map(str, self._weights[self._first].memoryview()[:count]))
        finally:
            with self._change:
                self._busy -= 1
                self._change.notify_all()

    def turn(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Parks or wakes. Nobody computes while the weights leave."""
        wakes = asked["do"] == control.WAKE
        try:
            with self._change:
                self._change.wait_for(lambda: not self._busy)
                did = wakes is not self._is_awake
                if did and wakes:
                    self._weights.unpark(WAKE_S)
                elif did:
                    self._weights.park(room=0)
                self._is_awake = wakes
                self._change.notify_all()
        except gpuwm.errors.Error as error:
            return {"error": type(error).__name__, "message": error.message, "detail": error.detail}
        return {"seconds": 0.0, "did": did}


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 2048

    def __init__(self, address: str, handler: type[Any], engine: Engine) -> None:
        super().__init__(address, handler)
        self.engine = engine


class Control(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        if control.is_ours(self.request):
            told = self.server.engine.turn(json.loads(self.rfile.readline(control.LINE_MAX)))
            self.wfile.write(json.dumps(told).encode() + b"\n")


class Requests(http.server.BaseHTTPRequestHandler):
    server: Server
    wbufsize = 1 << 16  # head and body go in one piece

    def do_GET(self) -> None:
        self._send({"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        content = self.server.engine.answer(asked.get("max_tokens", 8))
        message = {"role": "assistant", "content": content}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        name = self.server.engine.name
        told = {"id": "1", "object": "chat.completion", "created": 0, "model": name}
        self._send({**told, "choices": [choice]})

    def _send(self, told: Any) -> None:
        body = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "-"  # of a Unix socket there is none


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("socket", "name", "version"):
        parser.add_argument(name)
    given = parser.parse_args()
    engine = Engine(given.name, given.version)
    commands = Server(control.socket_name(os.getpid()), Control, engine)
    threading.Thread(target=commands.serve_forever, daemon=True).start()
    Server(given.socket, Requests, engine).serve_forever()


if __name__ == "__main__":
    main()
