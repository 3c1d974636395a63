#!/bin/sh
# Many threads of one client while gpuwmd is killed under them, by a plain program: with `make tsan` it is
# built with ThreadSanitizer, under which Criterion does not run.
#   tests/restart-threads.sh BUILD KILLS [BUILD OF THE PROGRAM]
set -eu
build=$(cd "${1:-build}" && pwd)
tool=$(cd "${3:-$build}" && pwd)/tests/tools/restart-threads
dir=$(mktemp -d /tmp/gpuwm-threads-XXXXXX)
keeper=
finish() {
	[ -z "$keeper" ] || { kill "$keeper" && wait "$keeper"; } 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT

export GPUWM_SOCKET="$dir/gpuwm.sock" TSAN_OPTIONS="halt_on_error=1 exitcode=66"
"$build/bin/gpuwm-keeper" --restart-delay 0 --runtime-dir "$dir" -- "$build/bin/gpuwmd" --socket "$GPUWM_SOCKET" \
	--admin-socket "$dir/admin.sock" --loader "$build/bin/gpuwm-loader" 2>"$dir/log" &
keeper=$!
if ! timeout 300 "$tool" "${2:-100}"; then
	tail -n 20 "$dir/log"
	exit 1
fi
