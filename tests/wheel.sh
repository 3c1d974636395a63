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

# The tag is the one that docs/python.md promises, and programs and library find there all that they need of glibc.
tag=${wheel##*/} tag=${tag%.whl} tag=${tag#gpuwm_client-*-}
if [ "$(uname -m)" = x86_64 ] && ! grep -qF "\`$tag\`" docs/python.md; then
	echo "docs/python.md does not say that the wheel's tag is $tag: $(grep -o 'py3-none-[a-z0-9_]*' docs/python.md)"
	exit 1
fi
# So is its size, to 0.1 MB more or less.
for page in README.md docs/python.md; do
	said=$(tr '\n' ' ' <$page | sed -nE 's/.* (in|has) ([0-9.]+) MB, and needs no compiler.*/\2/p')
	if [ "$(uname -m)" = x86_64 ] && ! awk -v said="$said" -v bytes="$(stat -c %s "$wheel")" \
		'BEGIN { off = said - bytes / 1000000; exit !(off < 0.15 && off > -0.15) }'; then
		echo "$page says that the wheel has ${said:-no} MB, and it has $(stat -c %s "$wheel") bytes"
		exit 1
	fi
done
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
python3 -m zipfile -e "$wheel" "$files"
PYTHONPATH=$files python3 -m gpuwm.compare --help >"$files/help" || { echo "python -m gpuwm.compare does not run from the wheel"; exit 1; }
newest=$(readelf -W --dyn-syms "$files"/gpuwm/lib/*.so* "$files"/gpuwm/bin/* | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -n 1)
# A symbol without a version is in no glibc that the linker knew.
open=$(for file in "$files"/gpuwm/lib/*.so* "$files"/gpuwm/bin/*; do nm -D --undefined-only "$file" | awk '$1 == "U" && $2 !~ /@/'; done)
promised=$(echo "$tag" | sed -n 's/.*-manylinux_\([0-9]*\)_\([0-9]*\)_.*/GLIBC_\1.\2/p')
if [ "$(printf '%s\n' "$newest" "$promised" | sort -V | tail -n 1)" != "$promised" ]; then
	echo "a program needs $newest, and the wheel's tag promises ${promised:-no glibc}"
	exit 1
fi
if [ -n "$open" ]; then
	echo "no glibc of the wheel's tag has these functions:$open"
	exit 1
fi

# A wheel without programs has no commands: they would hide the system's.
cp -r python "$files/source" && cp LICENSE "$files/source/"
"$(scripts/venv wheel)/bin/python" -m build --wheel --no-isolation --outdir "$files" "$files/source" >"$files/log" 2>&1 ||
	{ cat "$files/log"; exit 1; }
python3 -m zipfile -e "$files"/*-none-any.whl "$files/pure"
if grep -q console_scripts "$files"/pure/*.dist-info/entry_points.txt; then
	echo "a wheel without programs has commands"
	exit 1
fi
rm -rf "$files"
trap - EXIT

GPUWM_TEST_WHEEL=$wheel tests/python.sh "$build" pytest tests/test_quick_start.py tests/test_installation.py tests/test_wheel.py
tests/first-hour.sh "$build" "$wheel" || [ $? -eq 77 ]
