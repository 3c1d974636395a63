#!/bin/sh
# scripts/run-tests itself: what it counts as passed, as failed and as unsteady. It runs a tree of its own, in which all test
# programs are stand-ins.
#   tests/run-tests.sh
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d /tmp/gpuwm-run-tests-XXXXXX)
trap 'rm -rf "$work"' EXIT
failed=0

mkdir -p "$work/scripts" "$work/build/tests/unit" "$work/build/tests/bench"
cp scripts/run-tests "$work/scripts/"
printf '#!/bin/sh\n' >"$work/scripts/room"
chmod +x "$work/scripts/room"
# Everything but unit tests is skipped.
for other in $(grep -oE 'tests/[a-z-]+(\.sh|/run)|tests/operators/[a-z]+/run|tests/gpu/[a-z]+/check|\$build"?/tests/(bench|faults)/[a-z]+' scripts/run-tests | sed 's|.*build"*/|build/|' | sort -u); do
	mkdir -p "$work/${other%/*}"
	printf '#!/bin/sh\nexit 77\n' >"$work/$other"
	chmod +x "$work/$other"
done

# program NAME TEST=RESULT...: a stand-in for a Criterion program. RESULT is ok, not, once (it fails the first time only),
# skip, crash, leaks (a sanitizer reports a leak of ours) or stopped (LeakSanitizer met a thread that ended).
program() {
	file=$work/build/tests/unit/$1
	shift
	{
		printf '#!/bin/sh\ntests="%s" left=%s.ran\n' "$*" "$file"
		cat <<'END'
wanted=
while [ $# -gt 0 ]; do
	case $1 in
	--tap=*) tap=${1#--tap=} ;;
	--filter) wanted=$(echo "$2" | tr '@()|' '    ') ;;
	esac
	shift
done
ran=0 passed=0 crashed=0
reports=$(echo "$ASAN_OPTIONS" | sed 's/^log_path=\([^:]*\):.*/\1/')
for test in $tests; do
	name=${test%=*}
	if [ -n "$wanted" ] && ! echo "$wanted" | grep -qw "s/$name"; then
		echo "ok - s::$name  # SKIP test was skipped"
		continue
	fi
	result=${test#*=}
	[ "$result" != once ] || { [ -e "$left" ] && result=ok || result=not; }
	ran=$((ran + 1))
	case $result in
	ok) passed=$((passed + 1)) && echo "ok - s::$name  (0.00s)" ;;
	skip) ran=$((ran - 1)) && echo "ok - s::$name  # SKIP no room here" ;;
	not) printf 'not ok - s::%s  (0.00s)\n  - a.c:1: |+\n      why %s\n' "$name" "$name" ;;
	leaks) passed=$((passed + 1)) && echo "ok - s::$name  (0.00s)" &&
		printf 'ERROR: LeakSanitizer: detected memory leaks\n    #1 0x1 in f /a.c:1\n' >"$reports.1" ;;
	stopped) passed=$((passed + 1)) && echo "ok - s::$name  (0.00s)" &&
		printf '==2==Unable to get registers from thread 1.\n' >"$reports.2" ;;
	crash) crashed=$((crashed + 1)) && echo "not ok - s::$name unexpected signal after a.c:1" ;;
	esac
done >"$tap"
touch "$left"
echo "Synthesis: Tested: $ran | Passing: $passed | Failing: $((ran - passed)) | Crashing: $crashed"
[ $passed -eq $ran ]
END
	} >"$file"
	chmod +x "$file"
}

# counts WHAT LINE UNSTEADY TEST=RESULT...: run-tests ends with LINE, and calls so many tests unsteady
counts() {
	what=$1 line=$2 unsteady=$3
	shift 3
	rm -f "$work"/build/tests/unit/*
	program unit_one "$@"
	"$work/scripts/run-tests" "$work/build" >"$work/log" 2>&1 || true
	if [ "$(tail -n 1 "$work/log")" = "$line" ] && [ "$(grep -c '^unit_one: s::' "$work/build/unsteady")" = "$unsteady" ]; then
		return
	fi
	echo "FAIL $what: not \"$line\" with $unsteady unsteady"
	sed -n '/^once more/p; /^== unsteady/,$p' "$work/log" | sed 's/^/    /'
	failed=1
}

counts "all pass" "2 passed, 0 failed" 0 a=ok b=ok
counts "one is skipped" "1 passed, 0 failed" 0 a=ok b=skip
grep -qx '   1 skipped: no room here' "$work/log" || { echo "FAIL it is not said why one is skipped" && failed=1; }
counts "one fails" "1 passed, 1 failed" 0 a=ok b=not
counts "one passes when repeated" "2 passed, 0 failed" 1 a=ok b=once
counts "one of two passes when repeated" "2 passed, 1 failed" 1 a=ok b=once c=not
counts "one passes when repeated, another crashes" "2 passed, 1 failed" 1 a=ok b=once c=crash
counts "many are not repeated" "0 passed, 4 failed" 0 a=once b=once c=once d=once
counts "a sanitizer's report counts" "2 passed, 1 failed" 0 a=ok b=leaks
counts "a sanitizer's own trouble does not" "2 passed, 0 failed" 0 a=ok b=stopped
# Two pytests run at a time; both count.
printf '#!/bin/sh\necho "3 passed in 1s"\n' >"$work/tests/vllm.sh"
printf '#!/bin/sh\necho "FAILED t.py::b - why"; echo "1 failed, 4 passed in 1s"; exit 1\n' >"$work/tests/sglang.sh"
counts "what ran beside the others counts" "8 passed, 1 failed" 0 a=ok
# A script that ran beside the others and failed is run again.
cat >"$work/tests/operators/look/run" <<END
#!/bin/sh
[ -e "$work/looked" ] || { touch "$work/looked"; echo "FAIL a look"; exit 1; }
END
counts "what failed beside the others and passed alone" "9 passed, 1 failed" 0 a=ok
grep -q '^top and doctor: ended with 1 among the others' "$work/build/unsteady" ||
	{ echo "FAIL what passed alone is not called unsteady" && failed=1; }
printf '#!/bin/sh\necho "FAIL it looks bad"; exit 1\n' >"$work/tests/operators/look/run"
counts "what fails alone too" "8 passed, 2 failed" 0 a=ok
grep -q 'FAIL it looks bad' "$work/build/failures" || { echo "FAIL it is not said why" && failed=1; }
exit $failed
