"""Loads one rank's model, by vLLM, from a trainer's tensors into the memory of a new version.

A fresh model is built for each version, as an engine builds its own. Its large parameters have no
memory but the version's, so vLLM's loaders write there at once: sharded and fused. What
post-processing replaces (quantised and repacked weights) is copied there, layer by layer. Then the
image of the model is compared with that of the version that engines use.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from vllm.config import CompilationMode, set_current_vllm_config
from vllm.model_executor.model_loader.reload import layerwise
from vllm.model_executor.model_loader.utils import initialize_model

from .. import errors
from .._publish.making import Making
from .._torch import init
from .._torch.places import modules_of, places
from ..image import record
from ..image.graph import Graph, Leaf
from ..image.postprocess import own_calls
from ..image.storages import Storages, Stored, view_of
from . import attributes, backends, layouts, postprocess, stand_in
from .coverage import Tensors, Watched
from .part_memory import Memory, fits, info_of, placed
from .publication import OPAQUE
from .raw import FedLoader

COMPLETE = "give all tensors that the model's checkpoint has, under its names"


@dataclasses.dataclass
class Filled:
    """A part that is ready for its commit. text: the record of its image. copied: how many bytes
    were copied, because post-processing made them elsewhere or their tensors were too small to be
    placed."""

    text: bytes
    copied: int


class Skeleton:
    """Builds models of one rank. part: of the version whose layout these models have."""

    def __init__(self, vllm_config: Any, part: layouts.Part, device: torch.device) -> None:
        self._config, self._part, self._device = vllm_config, part, device
        self._quantization = copy.deepcopy(vllm_config.quant_config)
        # An image does not have how an engine runs a model, and a compiler would keep each model.
        vllm_config.compilation_config.mode = CompilationMode.NONE

    def chosen(self) -> dict[str, str]:
        """The backends that the layers choose, as fields of a key."""
        with self._building(), self._built(init.Emptied()) as model:
            return backends.backends(model)

    def fill(
        self, making: Making, tensors: Iterable[tuple[str, torch.Tensor]], given: Tensors
    ) -> Filled:
        """Loads the tensors, and fills the part's memory. Raises Mismatch (names, shapes or dtypes
        that vLLM can't load, a parameter that is missing, or a model that differs from the
        version's), Invalid (there are no tensors), and what iterating over `tensors` raises."""
        emptied = init.Emptied(layouts.SMALL_BYTES)
        with self._building(), self._built(emptied) as model:
            memory = Memory(making, self._part)
            filling = _Filling(model, self._config, self._part, memory, self._device)
            try:
                filling.place(emptied.parameters)
                filling.load(tensors, given)
                return filling.finish()
            finally:
                filling.release()

    @contextlib.contextmanager
    def _building(self) -> Iterator[None]:
        config = self._config
        with contextlib.ExitStack() as stack:
            if self._device.type == "cuda":
                stack.enter_context(torch.cuda.device(self._device))
            stack.enter_context(stand_in.standing_for(config, self._part.rank))
            stack.enter_context(set_current_vllm_config(config))
            # After an error vLLM's own context does not restore torch's default dtype.
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            torch.set_default_dtype(config.model_config.dtype)
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
            yield

    @contextlib.contextmanager
    def _built(self, emptied: init.Emptied) -> Iterator[Any]:
        """Builds a fresh model. Building it changes what is copied or cleared here: names are
        mapped, and layers registered, once for each model."""
        config = self._config
        config.quant_config = copy.deepcopy(self._quantization)
        compilation = config.compilation_config
        registered = (
            compilation.static_forward_context,
            getattr(compilation, "static_all_moe_layers", []),
        )
        for each in registered:
            each.clear()
        try:
            with init.emptying(emptied), torch.device(config.device_config.device):
                model = initialize_model(vllm_config=config, model_config=config.model_config)
            yield model.eval()
        finally:
            for each in registered:
                each.clear()


class _Filling:
    def __init__(
        self,
        model: Any,
        vllm_config: Any,
        part: layouts.Part,
        memory: Memory,
        device: torch.device,
    ) -> None:
        self._model, self._config, self._part = model, vllm_config, part
        self._memory, self._device = memory, device
        self._names = {module: prefix for prefix, module in reversed(modules_of(model))}
        self._unwritten: set[str] = set()
        self._copied = 0

    # ---- before ----

    def place(self, emptied: Iterable[torch.Tensor]) -> None:
        """Gives parameters that were made without memory the version's memory, or memory of their
        own if the version has no such bytes under their names."""
        wanted = {id(parameter) for parameter in emptied}
        for place in places(modules_of(self._model)):
            if id(place.tensor) in wanted:
                init.swap(place.tensor, self._place(place.tensor, place.names))

    def _place(self, tensor: torch.Tensor, names: Iterable[str]) -> torch.Tensor:
        for name in names:
            info = self._memory.infos.get(name)
            if info is not None and info.nbytes == tensor.nbytes and _dense(tensor):
                view = view_of(self._memory[name], tensor.dtype, tensor.size(), tensor.stride(), 0)
                return init.of_class(type(tensor), view)
        own = torch.empty_strided(
            tensor.size(), tensor.stride(), dtype=tensor.dtype, device=self._device
        )
        return init.of_class(type(tensor), own)

    # ---- load ----

    def load(self, tensors: Iterable[tuple[str, torch.Tensor]], given: Tensors) -> None:
        model, model_config = self._model, self._config.model_config
        loader = FedLoader(self._config.load_config, given.given(tensors), "the trainer's tensors")
        parameters = {
            name: parameter
            for name, parameter in model.named_parameters()
            if not parameter.is_meta and init.is_plain(parameter)
        }
        buffers = _saved_buffers(model)
        with self._settled_by_layer():
            watched = Watched({**parameters, **buffers}, given)
            try:
                with watched:
                    loader.load_weights(model, model_config)
            except (AssertionError, KeyError, ValueError, RuntimeError, IndexError) as error:
                told = _not_loaded(error, given)
                raise told from (None if told is error else error)
            left = self._check_written(watched, buffers)
            _check_layers(model)
            with torch.device(self._config.device_config.device):
                layerwise.finalize_layerwise_processing(model, model_config)
        for module, run in postprocess.Replay(model, model_config).steps():
            run(module)
            self.settle(module)
        postprocess.finish(model, model_config)
        self._unwritten.update(name for name, since in left.items() if _is_unchanged(since))

    def _check_written(
        self, watched: Watched, buffers: dict[str, torch.Tensor]
    ) -> dict[str, tuple[torch.Tensor, int]]:
        """Checks the loaded parameters. It returns the buffers that nobody loaded, with their
        state: post-processing may write them."""
        left = {}
        for name, in_part in watched.missing():
            if name in buffers and not in_part:
                left[name] = (buffers[name], buffers[name]._version)
                continue
            if name in buffers:
                raise errors.Mismatch(
                    f"a part of buffer {name} is missing in the trainer's tensors", COMPLETE
                )
            parameter = self._model.get_parameter(name)
            if not in_part and self._may_be_missing(name, parameter):
                self._unwritten.add(name)
                continue
            raise errors.Mismatch(
                f"{'a part of ' if in_part else ''}parameter {name} is missing in the trainer's "
                "tensors",
                COMPLETE,
            )
        return left

    def _may_be_missing(self, name: str, parameter: torch.Tensor) -> bool:
        """Whether a parameter may stay unloaded: checkpoints lack some scales, which keep the value
        that the layer's quantisation gave them. The rule is that of vLLM's own loader."""
        layer = self._model.get_submodule(name.rpartition(".")[0])
        method = getattr(layer, "quant_method", None)
        is_small = parameter.nbytes < layouts.SMALL_BYTES
        return is_small and hasattr(method, "process_weights_after_loading")

    # ---- what post-processing left ----

    @contextlib.contextmanager
    def _settled_by_layer(self) -> Iterator[None]:
        """Inside, layers that vLLM quantises as soon as it has all of their weights move at
        once."""
        process: Callable[..., object] | None = getattr(layerwise, "_layerwise_process", None)
        if process is None:
            yield  # all layers move when everything is loaded
            return

        def processed(layer: Any, info: Any) -> None:
            process(layer, info)
            self.settle(layer)

        layerwise._layerwise_process = processed
        try:
            yield
        finally:
            layerwise._layerwise_process = process

    def settle(self, module: Any) -> None:
        """Moves what this module got new memory for into the version, if it is large and the
        version has its name. The copies that remain are made by `finish`."""
        prefix = self._names.get(module)
        parameters = module.parameters(recurse=False) if prefix is not None else ()
        if not any(
            each.nbytes >= layouts.SMALL_BYTES and not self._memory.holds(each)
            for each in parameters
        ):
            return
        with own_calls():
            graph = Graph(module, OPAQUE, attributes.IGNORED)
            storages = Storages(graph.leaves)
            for stored in storages.stored:
                if stored.nbytes >= layouts.SMALL_BYTES:
                    self._settle(f"{prefix}{stored.name}", stored, storages, graph.leaves)

    def _settle(self, name: str, stored: Stored, storages: Storages, leaves: list[Leaf]) -> None:
        info = self._memory.infos.get(name)
        if info is None or self._memory.holds(stored.whole) or not fits(info, stored.whole):
            return
        to = placed(self._memory[name], stored.whole)
        to.copy_(stored.whole)
        self._copied += stored.nbytes
        positions = {id(leaf): position for position, leaf in enumerate(leaves)}
        for leaf in stored.leaves:
            tensor: Any = leaf.tensor
            offset = storages.views[positions[id(leaf)]].offset
            tensor.data = view_of(to, tensor.dtype, tensor.size(), tensor.stride(), offset)
        stored.whole = to

    # ---- after ----

    def finish(self) -> Filled:
        """Compares the model with the version's image, and copies what does not lie in the part's
        memory yet."""
        with own_calls():
            graph = Graph(self._model, OPAQUE, attributes.IGNORED)
            graph.mark_written(attributes.WRITTEN)
            storages = Storages(graph.leaves)
            if storages.problems:
                raise errors.Unsupported(
                    "nothing was published:\n  " + "\n  ".join(storages.problems)
                )
            text = record.written(graph, storages)
            infos = [info_of(stored.name, stored.whole) for stored in storages.stored]
            self._part.check_record(text, infos)
            self._check_unwritten(storages)
            self._copy(storages)
        return Filled(text, self._copied)

    def _check_unwritten(self, storages: Storages) -> None:
        """Checks small parameters that nobody loaded: they are right if the version has the same
        values."""
        for stored in storages.stored:
            for leaf in stored.leaves:
                names = self._unwritten.intersection(leaf.names)
                if names and not layouts.is_as_before(self._part, stored.name, stored.whole):
                    raise errors.Mismatch(
                        f"{min(names)} is missing in the trainer's tensors, and "
                        f"{self._part.version} has other values than vLLM's constructor",
                        COMPLETE,
                    )

    def _copy(self, storages: Storages) -> None:
        pending = []
        for stored in storages.stored:
            memory = self._memory[stored.name]
            if stored.whole.data_ptr() == memory.data_ptr():
                continue
            # What lies in the place of another tensor is copied away first.
            whole = stored.whole.clone() if self._memory.holds(stored.whole) else stored.whole
            pending.append((memory, whole))
        for memory, whole in pending:
            placed(memory, whole).copy_(whole)
            self._copied += whole.nbytes

    def release(self) -> None:
        """Makes the model give up the part's memory, whoever still refers to the model. What it
        shares with other models of this process, such as vLLM's rotary embeddings, stays as it
        is."""
        with own_calls():
            for leaf in Graph(self._model, OPAQUE, attributes.IGNORED).leaves:
                tensor: Any = leaf.tensor
                if leaf.parts is None and init.is_plain(tensor) and self._memory.holds(tensor):
                    tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        self._memory.forget()


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous()


def _not_loaded(error: Exception, given: Tensors) -> Exception:
    if isinstance(error, errors.Error) or error is given.raised:
        return error
    last = f"tensor {given.last} {list(given.shapes[given.last])}" if given.last else "any tensor"
    said = " ".join(str(error).split())[:300] or type(error).__name__
    return errors.Mismatch(
        f"vLLM could not load the trainer's tensors; the last that it got was {last}: {said}",
        "give tensors with the names and shapes that the model's checkpoint has",
    )


def _check_layers(model: Any) -> None:
    """Raises Mismatch if a layer that vLLM quantises when it is complete waits for more."""
    for name, module in model.named_modules():
        info = layerwise.get_layerwise_info(module)
        if info.can_load() and info.load_numel < (info.load_numel_total or 0):
            raise errors.Mismatch(
                f"{info.load_numel_total:,} elements of layer {name} are to be quantised, and the "
                f"trainer's tensors have {info.load_numel:,} of them",
                COMPLETE,
            )


def _saved_buffers(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The buffers that a checkpoint may hold. vLLM does not record which of them it loads."""
    saved = model.state_dict(keep_vars=True)
    return {
        name: buffer
        for name, buffer in model.named_buffers()
        if name in saved and not buffer.is_meta and not buffer.is_inference()
    }


def _is_unchanged(since: tuple[torch.Tensor, int]) -> bool:
    buffer, version = since
    return buffer._version == version
