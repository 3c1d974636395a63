#!/bin/sh
# gpuwm's loader in vLLM, on a CPU: tests/vllm.sh BUILD [next|middle] [ARGUMENT OF PYTEST...]
# "next": in the newest vLLM with which these tests have run; "middle": in one between that and the oldest. The first time it
# needs a package index: scripts/venv.
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "python itself is not built with AddressSanitizer, and can't load a library that is"
	exit 77
fi
which=vllm
case ${1:-} in
next | middle)
	which=vllm-$1
	shift
	;;
esac
venv=$(scripts/venv $which) || { echo "scripts/venv: build/venv-$which could not be made"; exit 1; }
PATH=$venv/bin:$PATH
cd python
export GPUWM_TEST_BACKEND=host GPUWM_BUILD="$build" GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$PWD:$PWD/tests"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
exec python -m pytest -p no:cacheprovider -o testpaths=tests_vllm "$@"
