"""What `tests_vllm` and `tests_sglang` share: both load models with an inference engine."""
