#!/bin/sh
# Several loads take a model from a gpuwm-peer at the same time, over all lanes, and one of them is cancelled: gpuwm-peer and gpuwm-loader are of
# a build with ThreadSanitizer, which must find nothing. gpuwmd has one thread, and is of the other build.
#   tests/peer-threads.sh BUILD BUILD_OF_THE_TWO
set -eu
build=$(cd "$1" && pwd)
tsan=$(cd "$2" && pwd)
dir=$(mktemp -d /tmp/gpuwm-threads-XXXXXX)
daemon= peer=
finish() {
	[ -z "$peer$daemon" ] || { kill $peer $daemon && wait $peer $daemon; } 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT
fail() {
	echo "peer-threads.sh: $1" >&2
	tail -n 20 "$dir"/*.log >&2
	exit 1
}
# until WORDS: a log has them.
until_said() {
	for _ in $(seq 600); do
		grep -q "$1" "$dir"/*.log && return
		sleep 0.1
	done
	fail "nobody says \"$1\""
}
ctl() {
	"$build/bin/gpuwmctl" "$@"
}

export GPUWM_SOCKET="$dir/gpuwm.sock" TSAN_OPTIONS="log_path=$dir/report exitcode=66"
mkdir "$dir/models"
"$build/tests/tools/make-weights" "$dir/models/model.safetensors" 64M >/dev/null
head -c 40 /dev/urandom | base64 >"$dir/secret"
printf '[peers]\nsecret = %s\nlisten = 127.0.0.1:0\n' "$dir/secret" >"$dir/peer.conf"
chmod 600 "$dir/secret" "$dir/peer.conf"
"$build/bin/gpuwmd" --socket "$GPUWM_SOCKET" --admin-socket "$dir/admin.sock" --loader "$tsan/bin/gpuwm-loader" \
	--set loader.root="$dir/models" --set peers.secret="$dir/secret" 2>"$dir/gpuwmd.log" &
daemon=$!
until_said "socket of workers"
"$tsan/bin/gpuwm-peer" --config "$dir/peer.conf" --socket "$GPUWM_SOCKET" 2>"$dir/peer.log" &
peer=$!
until_said "(port "
source="peer://127.0.0.1:$(sed -n 's/.*(port \([0-9]*\)).*/\1/p' "$dir/peer.log")/m@v1"
ctl load "$dir/models/model.safetensors" m@v1 --device host --wait >/dev/null 2>&1 || fail "the model is not loaded"
loads=
for i in 1 2 3; do
	ctl load "$source" "m@copy$i" --device host --wait >"$dir/load$i.log" 2>&1 &
	loads="$loads $!"
done
ctl load "$source" m@none --device host >"$dir/none.log" 2>&1 || fail "the load that is to be cancelled does not begin"
for pid in $loads; do
	wait "$pid" || fail "a load failed"
done
ctl load "$source" m@last --device host >"$dir/last.log" 2>&1 || fail "a load does not begin"
ctl cancel "$(sed -n 's/^job \([0-9]*\).*/\1/p' "$dir/last.log")" >/dev/null 2>&1 || true # it may have ended
kill "$peer"
wait "$peer" || fail "gpuwm-peer ended with status $?"
peer=
for report in "$dir"/report*; do
	[ -e "$report" ] || continue
	cat "$report" >&2
	fail "ThreadSanitizer has found something"
done
echo "peer-threads.sh: ThreadSanitizer has found nothing"
