#!/bin/sh
# Models of transformers and timm and pipelines of diffusers, published by one process and bound by another:
#   tests/models.sh BUILD LIBRARY [ARGUMENT...]      python -m tests_models says which arguments there are
#   tests/models.sh BUILD pytest [ARGUMENT...]       the tests of that program
# The first time it needs a package index: scripts/venv.
set -eu
build=$(cd "$1" && pwd)
what=$2
shift 2
cd "$(dirname "$0")/.."
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "python itself is not built with AddressSanitizer, and can't load a library that is"
	exit 77
fi
venv=$(scripts/venv models) || { echo "scripts/venv: build/venv-models could not be made"; exit 1; }
PATH=$venv/bin:$PATH
cd python
export GPUWM_TEST_BACKEND=host GPUWM_BUILD="$build" GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$PWD:$PWD/tests"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
case $what in
pytest) exec python -m pytest -p no:cacheprovider -o testpaths=tests_models "$@" ;;
*) exec python -m tests_models "$what" "$@" ;;
esac
