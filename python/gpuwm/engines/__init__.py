"""What load formats of different inference engines share: `gpuwm.vllm` and `gpuwm.sglang` use it.

`load_flow` is the flow of a load, and calls an engine's own code through an abstract class. An
engine computes a key and a name from its own configuration (`names`, `fields`, `identity`), is
elected to build the version or attaches to it (`election`), compares keys (`differences`) and, if
it was elected, publishes its model (`publication`). All ranks of an engine take each step together
(`ranks`).

Nothing here imports an engine. `load_flow` and `publication` import torch; no other module imports
it before it is needed.
"""
