#!/bin/sh
# make keeps its promise: what is older than a header that it includes is made again.
#   tests/make.sh
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d /tmp/gpuwm-make-test.XXXXXX)
trap 'rm -rf "$dir"' EXIT
cp -r Makefile base include proto "$dir"
cd "$dir"
object=build/obj/proto/names.o
fail() {
	echo "FAIL: $*"
	exit 1
}
# made: whether make has anything to do for the object; it does it
made() {
	make -s CC="$PWD/cc" $object
	[ -e compiled ] && rm compiled
}
cat >cc <<'END'
#!/bin/sh
touch compiled
[ ! -e later ] || { sleep 0.02; touch proto/names.h; rm later; } # later than make began, by more than the clock's step
exec gcc "$@"
END
chmod +x cc

made || fail "an object that is not there is not made"
! made || fail "an object is made twice"
touch proto/names.h
made || fail "a header was saved, and the object is not made again"
touch later proto/names.c
made || fail "a source was saved, and the object is not made again"
made || fail "a header was saved while the compiler ran, and the object is not made again"
! made || fail "an object is made twice"
rm build/obj/proto/names.d
made || fail "the list of headers is gone, and the object is not made again"
make -s CC="$PWD/cc" CFLAGS=-DOTHER $object
[ -e compiled ] || fail "other flags, and the object is not made again"
echo "make makes again what has to be"
