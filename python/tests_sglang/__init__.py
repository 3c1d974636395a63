"""Tests that load models with SGLang itself, on a CPU: tests/sglang.sh runs them."""

# Environment variables of an engine.
STOP = "GPUWM_TEST_STOP"  # see `stopping`
RELEASE = "GPUWM_TEST_SGLANG"  # the version of SGLang that it takes itself for
RENAMED = "GPUWM_TEST_RENAMED"  # a function of SGLang, and the name that it gets: see `renaming`
FORGOTTEN = "GPUWM_TEST_FORGOTTEN"  # an argument of SGLang that gpuwm does not know
