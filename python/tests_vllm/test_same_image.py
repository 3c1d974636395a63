"""Two engines with the same model publish the same image, whatever addresses and hash seeds they
have. The keys of KV depend on it: they have a digest of the version's weights, files and metadata.
"""

from __future__ import annotations

from conftest import Daemon

import gpuwm
from gpuwm.vllm.publication import MADE_BY
from tests_engines.starting import Start


def test_two_builders_make_equal_versions(daemon: Daemon, start: Start) -> None:
    for ref in ("twice@v1", "twice@v2"):
        assert start("dense", load_format="gpuwm", extra={"ref": ref}).ask("shared")
    one, other = (gpuwm.attach(f"twice@{tag}") for tag in ("v1", "v2"))
    assert one.version.layout == other.version.layout
    assert one.digests() == other.digests()
    assert dict(one.files) == dict(other.files)
    differ = {name for name, text in one.metadata.items() if other.metadata[name] != text}
    assert differ <= {MADE_BY}
