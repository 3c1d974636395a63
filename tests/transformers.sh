#!/bin/sh
# The tests that import transformers, in its newest release with which they have run:
#   tests/transformers.sh BUILD [ARGUMENT OF PYTEST...]
# Those of quantised checkpoints, in the pinned release and with the packages that they need:
#   tests/transformers.sh BUILD quantised [ARGUMENT OF PYTEST...]
# The first time it needs a package index: scripts/venv.
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "python itself is not built with AddressSanitizer, and can't load a library that is"
	exit 77
fi
which=transformers-next
tests=$(cd python && grep -lE '^ *(import|from) (gpuwm\.)?transformers' tests/test_*.py | tr '\n' ' ')
if [ "${1:-}" = quantised ]; then
	which=quantised tests=tests/test_quantised.py
	shift
fi
venv=$(scripts/venv $which) || { echo "scripts/venv: build/venv-$which could not be made"; exit 1; }
PATH=$venv/bin:$PATH
cd python
export GPUWM_TEST_BACKEND=host GPUWM_BUILD="$build" GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$PWD"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
exec python -m pytest -p no:cacheprovider -o testpaths="$tests" "$@"
