"""Holds versions until it is killed: worker.py NAME REF...

Reads lines of Python up to a line with a zero byte, runs them, attaches, and says "holds". The lines may define
`held`, which stays alive.
"""

import ctypes
import sys

import gpuwm

PR_SET_NAME = 15


def call_me(name: str) -> None:
    """What `ps` and gpuwmd call this process: 15 bytes."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


name, *refs = sys.argv[1:]
code = "".join(iter(sys.stdin.readline, "\0\n"))
call_me(name)
exec(code)
client = gpuwm.connect(name=name, wait=30)
mappings = [gpuwm.attach(ref, client=client) for ref in refs]
print("holds", flush=True)
sys.stdin.read()
