"""examples/onnx_session.py: ONNX Runtime on a version's memory, beside an ordinary session."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import Daemon, eventually, on_host, run_python
from onnx import TensorProto, helper, numpy_helper

pytestmark = on_host

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "onnx_session.py"
WIDTH, LAYERS = 1024, 8
START_S = 120
# What a session has besides the weights came to 1.7 MiB, 0.053 of them.
SHARED_MOST = 0.1
# Prepacking copies the matrices. Some of that memory stays in the process after it was freed.
PRIVATE_LEAST = 0.5

# Anonymous memory that one session adds, by the bytes of all weights, and what it answers.
MEASURE = f"""
import json, pathlib, sys
import numpy as np, onnxruntime
import gpuwm
sys.path.insert(0, {str(EXAMPLE.parent)!r})
import onnx_session

def anonymous():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024

kind, path, name = sys.argv[1:]
x = np.linspace(-1, 1, 3 * {WIDTH}, dtype=np.float32).reshape(3, {WIDTH})
options = onnxruntime.SessionOptions()
if kind == "plain":
    options.add_session_config_entry("session.disable_prepacking", "1")
w = gpuwm.attach(name, device="host")
size = w.nbytes
before = anonymous()
if kind == "shared":
    session = onnx_session.session(w)
    w.drop()
else:
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
answer = session.run(None, {{"x": x}})[0]
print(json.dumps({{"grew": (anonymous() - before) / size, "answer": answer.tobytes().hex()}}))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Matrices, biases and ReLUs, with the weights in a file of their own."""
    random = np.random.default_rng(7)
    nodes, weights, last = [], [], "x"
    for layer in range(LAYERS):
        matrix = random.standard_normal((WIDTH, WIDTH), dtype=np.float32) / np.float32(32)
        weights += [
            numpy_helper.from_array(matrix, f"layer.{layer}.weight"),
            numpy_helper.from_array(matrix[0], f"layer.{layer}.bias"),
        ]
        nodes += [
            helper.make_node("MatMul", [last, f"layer.{layer}.weight"], [f"product.{layer}"]),
            helper.make_node("Add", [f"product.{layer}", f"layer.{layer}.bias"], [f"sum.{layer}"]),
            helper.make_node("Relu", [f"sum.{layer}"], [f"layer.{layer}"]),
        ]
        last = f"layer.{layer}"
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", WIDTH])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path = tmp_path_factory.mktemp("onnx") / "layers.onnx"
    onnx.save_model(made, path, save_as_external_data=True, location="layers.data")
    return path


@pytest.fixture(scope="module")
def name(daemon: Daemon, model: pathlib.Path) -> str:
    assert example("publish", str(model), "layers@v1") == "layers@v1\n"
    return "layers@v1"


def example(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, EXAMPLE, *arguments],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def measure(kind: str, model: pathlib.Path, name: str) -> tuple[float, np.ndarray]:
    found = json.loads(run_python(MEASURE, kind, str(model), name))
    return found["grew"], np.frombuffer(bytes.fromhex(found["answer"]), np.float32)


def test_a_session_on_a_version_adds_no_copy_and_answers_as_an_ordinary_one(
    model: pathlib.Path, name: str
) -> None:
    grew, answer = measure("shared", model, name)
    assert grew < SHARED_MOST
    assert np.array_equal(answer, measure("plain", model, name)[1])
    packed_grew, packed = measure("packed", model, name)
    assert packed_grew > PRIVATE_LEAST  # so the figure shows a copy where there is one
    # Kernels for packed matrices add up in another order.
    np.testing.assert_allclose(answer, packed, rtol=1e-4, atol=1e-4)


def test_workers_need_the_version_only(
    daemon: Daemon, model: pathlib.Path, name: str, tmp_path: pathlib.Path
) -> None:
    away = tmp_path / "away"
    model.parent.rename(away)
    try:
        said = example("run", name)
    finally:
        away.rename(model.parent)
    assert said.startswith(f"{name}: {2 * LAYERS} tensors shared, ")
    assert f"(1, {WIDTH})" in said
    eventually(lambda: daemon.leases(name) == 0)
