"""What gpuwm-serve may cost at most. serve_cost.py is the program that measures it, and
docs/benchmarks.md has the figures; these limits are some times as wide."""

from __future__ import annotations

import asyncio

import serve_cost

STREAMS = 64
OPEN = 500
# Beside the engine's own time, which is Python and sends as many chunks.
OF_THE_ENGINE = 8
CHUNK_US = 400
STREAM_KIB = 100  # 5,000 of them are 500 MiB


def test_chunks_and_open_streams_cost_little() -> None:
    with serve_cost.ways() as ways:
        told = {
            name: asyncio.run(serve_cost.ask(way, STREAMS, 50, 0.05)) for name, way in ways.items()
        }
        used = told["serve"].processor_us
        assert 0 < used < CHUNK_US
        assert used < OF_THE_ENGINE * told["engine"].processor_us
        assert all(each.delay_p50 > 0 for each in told.values())
        before = serve_cost.resident(ways["serve"].pid)
        mib = asyncio.run(serve_cost.hold(ways["serve"], OPEN)) - before
        assert mib * 1024 / OPEN < STREAM_KIB
