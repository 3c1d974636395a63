#!/bin/sh
# Clients that people have, LiteLLM's and LangChain's among them, in front of gpuwm-serve:
#   tests/clients.sh BUILD [ARGUMENT OF PYTEST...]
# The first time it needs a package index: scripts/venv.
set -eu
build=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")/.."
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "python itself is not built with AddressSanitizer, and can't load a library that is"
	exit 77
fi
venv=$(scripts/venv clients) || { echo "scripts/venv: build/venv-clients could not be made"; exit 1; }
PATH=$venv/bin:$PATH
cd python
export GPUWM_TEST_BACKEND=host GPUWM_BUILD="$build" GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$PWD"
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
exec python -m pytest -p no:cacheprovider -o testpaths=tests/test_serve_clients.py "$@"
