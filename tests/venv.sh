#!/bin/sh
# Which packages scripts/venv asks pip for, and of which index. A stand-in for Python takes its calls.
#   tests/venv.sh
set -eu
cd "$(dirname "$0")/.."
dir=$(mktemp -d /tmp/gpuwm-venv-test.XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/scripts" "$dir/python" "$dir/bin"
cp scripts/venv "$dir/scripts"
cp python/requirements*.txt "$dir/python"
# It makes an environment whose Python is itself, and notes what pip is asked for.
cat >"$dir/bin/python3" <<END
#!/bin/sh
case "\$1 \$2" in
"-m venv") for last; do :; done; mkdir -p "\$last/bin"; cp "\$0" "\$last/bin/python" ;;
"-m pip") shift 2; echo "\$*" >>"$dir/asked" ;;
esac
END
chmod +x "$dir/bin/python3"
PATH=$dir/bin:$PATH
fail() {
	echo "FAIL: $*"
	cat "$dir/asked"
	exit 1
}
# venv CHOICE NAME: what scripts/venv asks for, in a folder without environments
venv() {
	rm -rf "$dir/build" "$dir/asked"
	GPUWM_TORCH=$1 "$dir/scripts/venv" $2 >"$dir/said" 2>&1
}

venv cpu ''
head -n 1 "$dir/asked" | grep -q -- '--index-url https://download.pytorch.org/whl/cpu torch==' || fail "cpu takes another PyTorch"
venv pypi ''
! grep -q -- '--index-url' "$dir/asked" || fail "pypi takes PyTorch of another index"
grep -q '2.6 GB from PyPI' "$dir/said" || fail "it is not said how large PyTorch is"
venv pypi wheel
[ "$(grep -c . "$dir/asked")" = 1 ] && grep -q 'requirements-wheel.txt$' "$dir/asked" || fail "make wheel wants more than its own list"
if venv nvidia ''; then
	fail "GPUWM_TORCH=nvidia is taken"
fi
grep -q 'it may be cpu or pypi' "$dir/said" || fail "it is not said what GPUWM_TORCH may be"
echo "scripts/venv asks for what was chosen"
