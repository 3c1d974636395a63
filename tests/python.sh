#!/bin/sh
# The Python package's tests: tests/python.sh BUILD pytest [ARGUMENT...] | ruff | mypy
# GPUWM_TEST_BACKEND says on which memory. The first time it needs a package index: scripts/venv.
set -eu
build=$(cd "$1" && pwd)
what=$2
shift 2
cd "$(dirname "$0")/.."
venv=$(scripts/venv) || { echo "scripts/venv: build/venv could not be made"; exit 1; }
PATH=$venv/bin:$PATH
cd python

case $what in
ruff)
	ruff check --no-cache .
	exec ruff format --no-cache --check .
	;;
mypy)
	mypy --cache-dir ../build/mypy
	# The documents' examples, now that mypy knows all packages.
	export GPUWM_MYPY_CACHE=../build/mypy
	set -- -q tests/test_types.py -k by_mypy
	;;
esac

if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "python itself is not built with AddressSanitizer, and can't load a library that is"
	exit 77
fi
export GPUWM_BUILD="$build" GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$PWD"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
[ "${GPUWM_TEST_BACKEND:-host}" != fakecuda ] ||
	export LD_LIBRARY_PATH="$build/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec python -m pytest -p no:cacheprovider "$@"
