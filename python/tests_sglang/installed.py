"""The release of SGLang that the tests run with."""

import importlib.metadata

TEXT = importlib.metadata.version("sglang")
VERSION = tuple(int(part) for part in TEXT.split(".")[:3])
OLDEST, NEWEST = (0, 5, 16), (0, 5, 23)  # of those that the project supports
HAS_SESSIONS = VERSION >= (0, 5, 21)  # a trainer's update begins and ends
