"""What a test and `stepping.Worker` know, without an import of vLLM. A token is the number of the
version that computed it, or END."""

BLOCK = 16  # tokens of the KV cache
LONGEST = 1 << 17  # tokens of a request
STEP_S = 0.001  # as on a GPU; a request of LONGEST tokens outlasts every test
END = 9  # the token that ends a request


def other(version: int) -> int:
    return 3 - version
