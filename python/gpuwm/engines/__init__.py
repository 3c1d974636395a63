"""What load formats of different inference engines share: `gpuwm.vllm` and `gpuwm.sglang` use it.

An engine computes a key and a name from its own configuration (`texts`, `identity`), is elected to
build the version or attaches to it (`electing`), compares keys (`differences`) and, if it was
elected, publishes its model (`publishing`). All ranks of an engine take each step together
(`ranks`). Nothing here imports an engine, and no module imports torch before it is needed.
"""
