"""vLLM's engines on weights that gpuwm holds. Importing this package imports nothing of vLLM."""
