"""The keys of blocks: a chain of digests, in which each covers all that its block depends on.

    root ── block 0 ── block 1 ── …     one 24-byte digest each: 16 bytes of key, 8 of check

KV of a token depends on all tokens before it. So the digest of a block covers the digest of the
block before it, the block's own tokens, and what else the request has put into the block
(`Extras`). The root covers what KV depends on besides the request: `root_of`.

vLLM has hashes of its own for the same blocks. They are not used: they begin with a random number
in each process unless PYTHONHASHSEED is set, they do not cover the weights, and they have no second
half by which a collision shows.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

KEY_BYTES = 24  # 16 of the key, by which a block is looked up, and 8 of the check
FORMAT = 1  # of these keys, and of the bytes in a block; another number never matches
_TOKEN = "q"  # 8 bytes, so that no token overflows
# blake2b's `person`, so that a digest of one kind can't stand for one of the other.
_DOMAIN, _BLOCK_DOMAIN = b"gpuwm kv", b"gpuwm kv block"


def digest(*parts: bytes) -> bytes:
    """24 bytes of all parts, each with its length, so that no two lists of parts look the same."""
    found = hashlib.blake2b(digest_size=KEY_BYTES, person=_DOMAIN)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.digest()


def block_digest(data: bytes) -> bytes:
    """The same of one part, for what is computed for each block."""
    return hashlib.blake2b(data, digest_size=KEY_BYTES, person=_BLOCK_DOMAIN).digest()


def fields_digest(fields: Mapping[str, str]) -> bytes:
    """The digest of texts by name, in any order."""
    return digest(*(text.encode() for pair in sorted(fields.items()) for text in pair))


def root_of(ranks: Iterable[bytes]) -> bytes:
    """The begin of every chain of an engine. ranks: the identity of each rank, in their order.

    All ranks have the same keys, each in a region of its own. The root covers the identities of
    all of them, so a key stands for one state of the whole engine.
    """
    return digest(b"root", FORMAT.to_bytes(4, "little"), *ranks)


class Extras(NamedTuple):
    """What a request puts into its blocks besides tokens.

    - whole: of all blocks: the cache salt, and the name of a LoRA adapter.
    - spans: (position, length, text) of what stands for tokens from there on: a picture's digest.
    """

    whole: tuple[str, ...] = ()
    spans: tuple[tuple[int, int, str], ...] = ()


def extras_of(request: Any, lora_by_name: bool) -> Extras | None:
    """The extras of a request of vLLM's, or None if its KV can't be shared: it has embeddings
    instead of tokens, tokens that may be taken back, or a LoRA adapter of which only the name is
    known."""
    if request.prompt_embeds is not None or request.prompt_token_ids is None or request.resumable:
        return None
    whole = []
    if request.cache_salt:
        whole += ["salt", str(request.cache_salt)]
    if request.lora_request is not None:
        if not lora_by_name:
            return None
        whole += ["lora", str(request.lora_request.lora_name)]
    spans = [
        (feature.mm_position.offset, feature.mm_position.length, str(feature.identifier))
        for feature in request.mm_features or ()
    ]
    return Extras(tuple(whole), tuple(sorted(spans)))


class Chain:
    """The keys of one request's full blocks, computed as its tokens become known."""

    def __init__(self, root: bytes, block_size: int, extras: Extras) -> None:
        self._size = block_size
        self._spans = extras.spans
        # The extras of the whole request are in its first block, and so in all that follow.
        whole = digest(b"request", *(_bytes(text) for text in extras.whole))
        self._last = digest(b"begin", root, block_size.to_bytes(8, "little"), whole)
        self._keys = bytearray()

    def __len__(self) -> int:
        """How many blocks have keys."""
        return len(self._keys) // KEY_BYTES

    def extend(self, tokens: Sequence[int], end: int) -> None:
        """Computes the keys of the blocks before `end`. tokens: of the request; those of blocks
        that have keys are not read again."""
        begin = len(self)
        if end <= begin:
            return
        assert len(tokens) >= end * self._size
        size = self._size
        words = array(_TOKEN, tokens[begin * size : end * size])
        width = size * words.itemsize
        content = words.tobytes()
        for at in range(end - begin):
            own = content[at * width : (at + 1) * width]
            # The first two have one length each, so no two blocks give the same bytes.
            self._last = block_digest(self._last + own + self._in_block(begin + at))
            self._keys += self._last

    def keys(self, begin: int, end: int) -> bytes:
        """The keys of blocks from `begin` to before `end`, one after the other."""
        assert 0 <= begin <= end <= len(self), (begin, end, len(self))
        return bytes(self._keys[begin * KEY_BYTES : end * KEY_BYTES])

    def _in_block(self, block: int) -> bytes:
        """The spans that overlap a block, each at its position within the block."""
        if not self._spans:
            return b""
        begin, end = block * self._size, (block + 1) * self._size
        found = [
            f"{position - begin},{length},{len(text)},{text}"
            for position, length, text in self._spans
            if position < end and position + length > begin
        ]
        return _bytes(";".join(found))


def _bytes(text: str) -> bytes:
    """A text of a request may have half of a surrogate pair, which is no UTF-8."""
    return text.encode("utf-8", "surrogatepass")
