#!/bin/sh
# `make wheel`, installed into an empty environment: tests/wheel.sh BUILD
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "one wheel is enough: that of the tree without AddressSanitizer"
	exit 77
fi
wheel=$(scripts/wheel "$build")
echo "$wheel"
case $wheel in /*) ;; *) wheel=$PWD/$wheel ;; esac
GPUWM_TEST_WHEEL=$wheel exec tests/python.sh "$build" pytest tests/test_readme.py
