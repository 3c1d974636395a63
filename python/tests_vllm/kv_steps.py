"""The model of `kv_engine`, without an import of vLLM."""

from __future__ import annotations

import hashlib

BLOCK = 16  # tokens
LONGEST = 512  # tokens of a request
LAYERS, HEADS, SIZE = 2, 1, 16
TOKENS = 97  # that the model knows, a prime
MASK = (1 << 62) - 1


def state_after(before: int, token: int, weights: str) -> int:
    """The state of a token."""
    text = f"{before},{token},{weights}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") & MASK


def expected(prompt: list[int], count: int, weights: str) -> list[int]:
    """The tokens that a right engine answers."""
    state = 0
    for token in prompt:
        state = state_after(state, token, weights)
    answer = []
    for _ in range(count):
        answer.append(state % TOKENS)
        state = state_after(state, answer[-1], weights)
    return answer


PROMPT = [3, 1, 4, 1, 5, 9, 2, 6] * 10  # five blocks
COUNT = 4  # tokens of an answer
# What an engine computes that finds nothing: the last token of an answer is not computed.
ALL = len(PROMPT) + COUNT - 1
# With PROMPT's first four blocks: one token at least is computed, and so the fifth block.
REST = ALL - 4 * BLOCK
