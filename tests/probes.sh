#!/bin/bash
# The USDT probes of gpuwmd: what --version says there are is what is in the program, by readelf, and by bpftrace where
# that is installed. Without systemtap-sdt-dev at build time there are none, and --version says why.
#   tests/probes.sh BUILD
set -u
gpuwmd=$(cd "${1:-build}" && pwd)/bin/gpuwmd || exit 1

fail() {
	echo "tests/probes.sh: $*" >&2
	exit 1
}

said=$("$gpuwmd" --version | sed -n 's/^USDT probes: //p')
in_program=$(readelf -n "$gpuwmd" | sed -n '/Provider: gpuwmd$/{n;s/^ *Name: //p}' | sort -u | paste -sd' ')
case $said in
none*)
	case $said in *systemtap-sdt-dev*) ;; *) fail "--version does not say what was missing: $said" ;; esac
	[ -z "$in_program" ] || fail "--version says \"$said\", the program has: $in_program"
	[ ! -e /usr/include/sys/sdt.h ] && [ -z "$(ls /usr/include/*/sys/sdt.h 2>/dev/null)" ] ||
		fail "sys/sdt.h is there and the program has no probes: build anew"
	;;
*)
	expected=$(echo "$said" | tr -d , | tr ' ' '\n' | sort | paste -sd' ')
	[ "$in_program" = "$expected" ] || fail "--version says \"$expected\", the program has \"$in_program\""
	[ "$expected" = "attach load_begin load_end swap" ] || fail "gpuwmd(8) documents other probes than $expected"
	# Each needs as many arguments as gpuwmd(8) says.
	readelf -n "$gpuwmd" | awk '/Name: / { name = $2 } /Arguments: / { print name, NF - 1 }' | sort -u |
		diff - <(printf 'attach 5\nload_begin 4\nload_end 5\nswap 4\n') || fail "other arguments"
	if command -v bpftrace >/dev/null && [ "$(id -u)" = 0 ]; then
		bpftrace -l "usdt:$gpuwmd:*" | grep -q ":gpuwmd:attach$" || fail "bpftrace does not list attach"
	fi
	;;
esac
echo "USDT probes: $said"
