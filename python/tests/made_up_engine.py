"""An engine that only pretends to compute: it parks and wakes as gpuwm.engines.control asks, and
answers with its own name once for each token.

    python made_up_engine.py SOCKET NAME '{"slots": FOLDER, …}'

What stands in for GPU memory are the locks of the files in `slots`: an engine that is awake has one
of them, and it is free when the process has ended. `gpuwmd` names a version instead, on which the
engine has a lease, with `room` bytes besides. It says that version with each token, and switches to
another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sys
import time
from typing import Any

from gpuwm.engines import control

BACKLOG = 8  # connections that wait to be accepted; vLLM has 2,048
ROOM_S = 10  # to wait for it, as engines of vLLM do
LINE = b'data: {"object": "chat.completion.chunk", "choices": [{"index": 0, %s}]}\n\n'


class Engine:
    """how: "token_s" and "wake_s", how long these take, the first of which a request may say too;
    "refuse": what it does not do; "clock": each chunk of a stream has the time when it was sent;
    "backlog": of connections; "switch": the errors of its first switches, "" for none."""

    def __init__(self, name: str, how: dict[str, Any]) -> None:
        self.name, self.how = name, how
        self.says = how.get("says", name)
        self.awake = asyncio.Event()
        self.counts = {"begun": 0, "ended": 0, "gone": 0}
        self.slot: Any = None
        self.lease: Any = None
        self.take()

    def take(self) -> None:
        """Memory."""
        if "gpuwmd" in self.how:
            import gpuwm

            if self.lease is None:
                self.lease = gpuwm.attach(self.how["gpuwmd"])
            self.lease.unpark(ROOM_S, room=self.how["room"])
            self.says = str(self.lease.version)
        elif "slots" in self.how and self.slot is None:
            for each in sorted(os.scandir(self.how["slots"]), key=lambda found: found.name):
                slot = open(each.path)  # noqa: SIM115 (held while it is awake)
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    self.slot = slot
                    break
                slot.close()
            else:
                raise MemoryError("all memory is taken")
        self.awake.set()

    def give(self) -> None:
        self.awake.clear()
        if self.lease is not None:
            self.lease.park(room=0)
        if self.slot is not None:
            self.slot.close()
            self.slot = None

    def switch(self, ref: str) -> dict[str, Any]:
        import gpuwm

        if self.how.get("switch") and (kind := self.how["switch"].pop(0)):
            return {"error": kind, "message": "as the test wants it"}
        old, self.lease = self.lease, gpuwm.attach(ref)
        moved = self.lease.version != old.version
        old.drop()
        self.lease.unpark(ROOM_S, room=self.how["room"])
        self.says = str(self.lease.version)
        return {"did": moved, "version": self.says, "id": self.lease.version.id}

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        did = self.awake.is_set() == (asked["do"] == control.PARK)
        await asyncio.sleep(self.how.get("wake_s", 0) if did else 0)
        answer: dict[str, Any] = {"seconds": 0.0, "did": did}
        try:
            if asked["do"] in self.how.get("refuse", ()):
                raise MemoryError("as the test wants it")
            if asked["do"] == control.SWITCH:
                answer.update(self.switch(asked["ref"]))
            else:
                (self.give if asked["do"] == control.PARK else self.take)()
        except (MemoryError, TimeoutError) as error:
            answer = {"error": "NoRoom", "message": str(error), "detail": ""}
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", 0)))
            path = head.split()[1]
            if path == "/health":
                answer(writer, b"{}")
            elif path == "/counts":
                answer(writer, json.dumps(self.counts).encode())
            elif path == "/echo":
                told = {"head": head, "body": body.decode(errors="replace")}
                answer(writer, json.dumps(told).encode())
            else:
                await self.compute(json.loads(body or b"{}"), path, writer)
        writer.close()

    async def compute(self, asked: dict[str, Any], path: str, writer: asyncio.StreamWriter) -> None:
        self.counts["begun"] += 1
        count = asked.get("max_tokens", 4)
        is_stream = asked.get("stream", False)
        if is_stream:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        words = []
        for _ in range(count):
            await self.awake.wait()
            await asyncio.sleep(asked.get("token_s", self.how.get("token_s", 0)))
            if writer.transport.is_closing():
                self.counts["gone"] += 1
                return
            words.append(f"{self.says} ")
            if is_stream:
                word = f"{time.monotonic_ns()} " if "clock" in self.how else words[-1]
                writer.write(LINE % _piece({"content": word}))
        self.counts["ended"] += 1
        calls = [_call(tool) for tool in asked.get("tools", ())[:1]]
        if is_stream:
            called = {"tool_calls": [{"index": 0, **call} for call in calls]} if calls else {}
            writer.write(LINE % _piece(called, "stop"))
            writer.write(b"data: [DONE]\n\n")
            return
        number = f"resp_{self.name}_{self.counts['begun']}"
        message: dict[str, Any] = {"role": "assistant", "content": "".join(words)}
        message |= {"tool_calls": calls} if calls else {}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        told = {"id": number, "object": "chat.completion", "created": 0, "model": self.name}
        answer(writer, json.dumps({**told, "choices": [choice], "path": path}).encode())


def _piece(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return f'"delta": {json.dumps(delta)}, "finish_reason": {json.dumps(finish)}'.encode()


def _call(tool: dict[str, Any]) -> dict[str, Any]:
    """Of a tool that a request offers: the engine calls the first one."""
    function = {"name": tool["function"]["name"], "arguments": '{"of": "it"}'}
    return {"id": "call_1", "type": "function", "function": function}


def answer(writer: asyncio.StreamWriter, body: bytes) -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
    writer.write(head.format(len(body)).encode() + body)


async def main(socket: str, name: str, how: dict[str, Any]) -> None:
    await asyncio.sleep(how.get("start_s", 0))
    while os.path.exists(how.get("starts_after", "")):
        await asyncio.sleep(0.01)
    engine = Engine(name, how)
    name = control.socket_name(os.getpid())
    commands = await asyncio.start_unix_server(engine.control, name)
    if socket.isdecimal():
        server = await asyncio.start_server(engine.serve, "127.0.0.1", int(socket))
    else:
        server = await asyncio.start_unix_server(
            engine.serve, socket, backlog=how.get("backlog", BACKLOG)
        )
    async with commands, server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
