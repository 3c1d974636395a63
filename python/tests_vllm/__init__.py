"""vLLM starts on a machine without a GPU as far as its model loaders, and gpuwm's loader has to leave
what vLLM's own leaves. tests/vllm.sh runs these tests. Nothing here imports vLLM before it is asked to."""
