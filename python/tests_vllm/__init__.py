"""vLLM loads models on a machine without a GPU, and gpuwm's loader has to leave what vLLM's own
loader leaves. tests/vllm.sh runs these tests."""
