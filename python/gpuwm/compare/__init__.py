"""gpuwm beside other loaders of safetensors files: `python -m gpuwm.compare --help`."""
