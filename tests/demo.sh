#!/bin/sh
# The demo as README's first reader runs it: as a user who may not look into gpuwmd.
#   tests/demo.sh [BUILD]
# Root becomes another user, in a PID namespace whose PID 1 asks for no status of the orphans that it gets, as in many
# containers. The copy is for a checkout that only root may enter.
set -eu
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
ORDINARY=61001 # a uid that no user here has

unset LD_PRELOAD # the tests' own, which lets them look into gpuwmd
if [ "$(id -u)" != 0 ]; then
	exec scripts/demo-run "$build"
fi
# PID 1 waits for its own child alone.
in_namespace() {
	unshare --pid --fork --kill-child --mount-proc \
		python3 -c 'import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))' "$@"
}
in_namespace true || { echo "root can't make a PID namespace here"; exit 77; }
copy=$(mktemp -d /tmp/gpuwm-demo-test.XXXXXX)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/scripts" "$copy/build"
cp scripts/demo-run scripts/room scripts/make-checkpoint "$copy/scripts"
cp -a "$build/bin" "$build/lib" "$copy/build"
chmod -R a+rX "$copy"
in_namespace setpriv --reuid $ORDINARY --regid $ORDINARY --clear-groups "$copy/scripts/demo-run" "$copy/build"
