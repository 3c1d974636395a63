#!/bin/bash
# README's "From the Hugging Face cache to a worker", word by word: from the wheel to tokens of a small model, by an ordinary
# user in an environment with torch and transformers. Then the commands of python/DESCRIPTION.md, the page of the wheel.
#   tests/first-hour.sh BUILD [WHEEL]
# Root becomes another user. The hub's cache has a made-up model of that name.
set -eu
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
ORDINARY=61002 # a uid that no user here has
if ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	echo "one wheel is enough: that of the tree without AddressSanitizer"
	exit 77
fi
wheel=${2:-$(scripts/wheel "$build")}
venv=$(scripts/venv)
home=$(mktemp -d /tmp/gpuwm-first-hour-XXXXXX)
as_reader=
in_home() {
	$as_reader env -i HOME="$home" TMPDIR="$home/tmp" PATH="$home/env/bin:/usr/bin:/bin" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$@"
}
trap 'in_home gpuwmctl stop >/dev/null 2>&1 || true; rm -rf "$home"' EXIT

# A Python that the reader may run, of the version for which torch is there.
python=$(readlink -f "$venv/bin/python")
version=$("$python" -c 'import sys; print(sys.version_info[:2])')
if [ "$(id -u)" = 0 ]; then
	as_reader="setpriv --reuid $ORDINARY --regid $ORDINARY --clear-groups"
	can_run="import ensurepip, sys; sys.exit(str(sys.version_info[:2]) != '$version')"
	if ! (cd / && $as_reader env "$python" -c "$can_run") 2>/dev/null; then
		python=/usr/bin/python3
		(cd / && $as_reader env "$python" -c "$can_run") || { echo "no other user can run a Python $version with venv here"; exit 77; }
	fi
fi
"$python" -m venv "$home/env"
"$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$(echo "$home"/env/lib/python3*/site-packages)/below.pth"
mkdir "$home/tmp" && cp "$wheel" "$home"
"$venv/bin/python" tests/first-hour.py "$home/.cache/huggingface/hub" Qwen/Qwen3-0.6B
[ -z "$as_reader" ] || chown -R $ORDINARY:$ORDINARY "$home"

tests/operators/pages/blocks README.md 1 >"$home/commands"
awk '/^## / { inside = /From the Hugging Face cache/ }
	/^```/ { code = inside && $0 == "```python" && !seen; seen += code; next } code' README.md >"$home/worker.py"
tests/operators/pages/blocks python/DESCRIPTION.md 1 >"$home/of-description"
cd "$home"
in_home bash -e commands
in_home python worker.py | tee said
grep -q '^The capital of France is .' said || { echo "FAIL: the worker prints no tokens"; exit 1; }
in_home gpuwmctl ls | grep -q '^qwen@v1 .*current.*ready' || { echo "FAIL: there is no qwen@v1"; exit 1; }
in_home gpuwmctl stop

# The page that PyPI shows: in a folder with a model, from where it starts gpuwmd.
cp -rL "$home"/.cache/huggingface/hub/models--Qwen--Qwen3-0.6B/snapshots/* my-model
[ -z "$as_reader" ] || chown -R $ORDINARY:$ORDINARY my-model
in_home bash -e of-description | tee said
grep -q "'model.norm.weight'" said || { echo "FAIL: python/DESCRIPTION.md's last command shows no tensors"; exit 1; }
in_home gpuwmctl stop
echo "README's first commands did what it says: $(du -h "$home"/gpuwm_client-*.whl | cut -f 1) of wheel, $(grep -c . commands) commands"
