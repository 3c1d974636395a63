"""Tests that load models with SGLang itself, on a CPU: tests/sglang.sh runs them."""

STOP = "GPUWM_TEST_STOP"  # an engine's environment variable: see `stopping`
RELEASE = "GPUWM_TEST_SGLANG"  # likewise: the version of SGLang that it takes itself for
