#!/bin/sh
# gpuwm and the reference (the Python package safetensors) judge the same mutated files; gpuwm may take none that the reference
# refuses.
#   tests/safetensors-reference.sh BUILD [ITERATIONS [SEED]]
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
venv=$(scripts/venv) || { echo "scripts/venv: build/venv could not be made"; exit 1; }
PYTHONDONTWRITEBYTECODE=1 exec "$venv/bin/python" tests/fuzz/safetensors_reference.py "$build/tests/fuzz/verdict_safetensors" "$@"
