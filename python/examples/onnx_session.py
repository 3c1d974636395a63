"""An ONNX model on shared weights, in host memory, without a copy:

    onnx_session.py publish MODEL.onnx MODEL@TAG    once
    onnx_session.py run MODEL@TAG                   in any number of workers

MODEL.onnx has its weights in a file beside it: `onnx.save_model(model, "model.onnx",
save_as_external_data=True)`. The version carries the graph, so that workers need no file.
"""

from __future__ import annotations

import argparse
import pathlib
import tempfile

import numpy as np
import onnxruntime

import gpuwm

GRAPH, WEIGHTS = "model.onnx", "weights"
FOLDER = "session.model_external_initializers_file_folder_path"


def publish(path: pathlib.Path, name: str) -> gpuwm.Version:
    """Publishes the weights that lie outside of the file, by their names, and the graph."""
    import onnx
    from onnx import external_data_helper, numpy_helper

    graph = onnx.load(path, load_external_data=False)
    outside = set()
    for tensor in filter(external_data_helper.uses_external_data, graph.graph.initializer):
        outside.add(tensor.name)
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = WEIGHTS
    weights = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in onnx.load(path).graph.initializer
        if tensor.name in outside
    }
    files = {GRAPH: graph.SerializeToString()}
    return gpuwm.publish(weights, name, bind=False, device="host", files=files)


def session(w: gpuwm.Mapping) -> onnxruntime.InferenceSession:
    """A session whose weights are the mapping's memory.

    ONNX Runtime refers to that memory without owning it, so the session holds the arrays, and the
    arrays hold the lease, for as long as the session lives.
    """
    shared = {name: onnxruntime.OrtValue.ortvalue_from_numpy(w.numpy(name)) for name in w}
    options = onnxruntime.SessionOptions()
    # Prepacking copies each matrix into the layout that its kernel likes best.
    options.add_session_config_entry("session.disable_prepacking", "1")
    # add_external_initializers() copies every tensor; add_initializer() does not.
    for name, value in shared.items():
        options.add_initializer(name, value)
    with tempfile.TemporaryDirectory() as folder:
        # The file that the graph names must exist. It is not read.
        pathlib.Path(folder, WEIGHTS).touch()
        options.add_session_config_entry(FOLDER, folder)
        made = onnxruntime.InferenceSession(
            w.files[GRAPH], options, providers=["CPUExecutionProvider"]
        )
    made.shared = shared  # set last, so that the session's own parts are freed before it
    return made


def run(name: str) -> None:
    with gpuwm.attach(name, device="host", wait=60) as w:
        made = session(w)
        print(f"{w.version}: {len(w)} tensors shared, {w.nbytes} bytes")
    inputs = {
        given.name: np.ones([n if isinstance(n, int) else 1 for n in given.shape], np.float32)
        for given in made.get_inputs()
    }
    for value in made.run(None, inputs):
        print(f"{value.shape} {value.sum():.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    publishes = commands.add_parser("publish")
    publishes.add_argument("path", type=pathlib.Path, metavar="MODEL.onnx")
    publishes.add_argument("name", metavar="MODEL@TAG")
    commands.add_parser("run").add_argument("name", metavar="MODEL@TAG")
    arguments = parser.parse_args()
    if arguments.command == "publish":
        print(publish(arguments.path, arguments.name))
    else:
        run(arguments.name)
