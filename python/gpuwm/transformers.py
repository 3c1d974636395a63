"""Hugging Face transformers on shared weights.

    import gpuwm.transformers
    from transformers import AutoModelForCausalLM

    model = gpuwm.transformers.from_pretrained("llama@prod", AutoModelForCausalLM)
    tokenizer = gpuwm.transformers.tokenizer("llama@prod")

Config and tokenizer come from the version's own files: no model folder, no network.
"""

from __future__ import annotations

import functools
import importlib
import json
import pathlib
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from . import _files, _installation, _needs, errors  # noqa: F401 (it raises where another project's gpuwm is)
from ._attach import attach_mapping
from ._c import dtypes, lib
from ._client import Client
from ._mapping import Mapping
from ._shown.progress import Hook

try:
    import torch

    from . import _quantised
    from ._torch import bind, conversion, fit
    from ._torch.build import made_empty
except ModuleNotFoundError as _absent:
    if _absent.name != "torch":
        raise
    raise _needs.no_torch("gpuwm.transformers", _needs.TRANSFORMERS) from None

_HOW = (
    "\nload it with transformers in one process and publish what it made of it, which all others "
    "then bind in place:\n"
    "  model = AutoModelForCausalLM.from_pretrained(folder)\n"
    '  gpuwm.publish(model, "name@tag", files=gpuwm.transformers.files(model))'
)
_AS_IMAGE = (
    "\nhave one process load the version's files with transformers and publish the model as it is "
    "then:\n"
    "  gpuwm.attach(ref).save(folder)\n"
    "  model = AutoModelForCausalLM.from_pretrained(folder)\n"
    '  gpuwm.image.publish(model, "name@tag", files=gpuwm.transformers.files(model), '
    'share_buffers=True, ignored=["_weight_conversions"])\n'
    "All others share its memory:\n"
    '  model = gpuwm.transformers.from_pretrained("name@tag")'
)
_LINES_SHOWN = 20  # how many lines or names a message has; BindError.problems has all


M = TypeVar("M", bound=torch.nn.Module)


# An Auto class is no model: what it makes is of another class, which the config names.
@overload
def from_pretrained(ref: str | Mapping, model_class: type[M], **options: Any) -> M: ...


@overload
def from_pretrained(ref: str | Mapping, model_class: Any = None, **options: Any) -> Any: ...


def from_pretrained(
    ref: str | Mapping,
    model_class: Any = None,
    *,
    dtype: torch.dtype | str = "auto",
    device: Any = None,
    rank: int = 0,
    wait: float | None = None,
    key: lib.Key | None = None,
    owner: lib.Owner | None = None,
    progress: Hook | None = None,
    client: Client | None = None,
    strict: bool = True,
    share_buffers: bool | str | Sequence[str] = False,
    private: str | Sequence[str] = (),
    guard: bool = True,
    **config: Any,
) -> Any:
    """Returns a model of transformers whose parameters are the version's memory, in evaluation
    mode.

    - ref: what to attach; or a Mapping. gpuwm.mapping_of(model) returns the mapping, to `switch`
      it.
    - model_class: an Auto class, or the class of a model. None: the class that the config names.
    - dtype: "auto": the config's dtype, or the version's.
    - device, rank, wait, key, owner, progress, client: as in `gpuwm.attach`.
    - share_buffers, private, guard: as in `Mapping.bind`.
    - strict: a buffer that the version lacks is an error. With strict=False it stays as `__init__`
      made it. A parameter that the version lacks is always an error, unless the model's class makes
      it without a file.
    - config: attributes that differ from the version's config.json (attn_implementation="sdpa",
      tie_word_embeddings=False).

    If this transformers renames tensors when it loads, the new names are applied in place. Tensors
    that the model lacks are left out, with a warning that names them. Tensors that transformers
    would make of others (experts in one tensor, split projections), or convert to another dtype,
    can't be shared: BindError names each of them and says what to do.

    If the version is a module image, as gpuwm.image.publish makes one of a quantised model, the
    model is made equal to the published one: transformers makes its modules, and the image has the
    rest. strict means nothing then.

    Raises Unsupported for a quantised checkpoint and for a model with code of its own, NotFound if
    the version has no config.json, and all errors of attach, bind and gpuwm.image.install.
    """
    library = _library()
    _check_class(model_class)
    dtypes.check_type(dtype)
    mapping = ref
    if not isinstance(mapping, Mapping):
        mapping = attach_mapping(
            mapping,
            device=device,
            rank=rank,
            wait=wait,
            key=key,
            owner=owner,
            progress=progress,
            client=client,
        )
    found = _config(library, mapping, config)
    make = functools.partial(_build, library, model_class, found, _dtype(mapping, found, dtype))
    if _quantised.is_image(mapping):
        if share_buffers:
            raise errors.Invalid(
                f"{mapping.version} is a module image, whose buffers are private",
                "publish it with gpuwm.image.publish(…, share_buffers=True)",
            )
        model = _quantised.model_of(mapping, found, make, private=private, guard=guard)
    else:
        model = made_empty(make, functools.partial(_lost, mapping), stacklevel=2)
        _bind(mapping, model, strict, share_buffers=share_buffers, private=private, guard=guard)
    if model.can_generate():
        model.generation_config = _generation_config(library, mapping)
    return model.eval()


def tokenizer(ref: str | Mapping, tokenizer_class: Any = None, **options: Any) -> Any:
    """Returns the version's tokenizer, from its own files.

    ref: what to attach while the tokenizer is made, on any device; or a Mapping. tokenizer_class:
    None: AutoTokenizer. options: of its `from_pretrained`. Code among the files is run only with
    trust_remote_code=True. Raises NotFound if the version has no tokenizer.
    """
    library = _library()
    mapping = ref if isinstance(ref, Mapping) else attach_mapping(ref)
    if not any("token" in name or "vocab" in name for name in mapping.files):
        raise errors.NotFound(
            f"{mapping.version} has no tokenizer: its files are {', '.join(mapping.files)}",
            "publish it with files=gpuwm.transformers.files(model, tokenizer)",
        )
    options.setdefault("trust_remote_code", False)  # the version's *.py are data
    with _files.files(mapping) as folder:
        chosen = library.AutoTokenizer if tokenizer_class is None else tokenizer_class
        made = chosen.from_pretrained(folder, local_files_only=True, **options)
    made.name_or_path = str(mapping.version)
    return made


def files(model: Any, tokenizer: Any = None) -> dict[str, bytes]:
    """The files that a version of the model needs besides its weights, as contents by name:
    `gpuwm.publish(model, name, files=gpuwm.transformers.files(model, tokenizer))`."""
    with tempfile.TemporaryDirectory() as folder:
        model.config.save_pretrained(folder)
        path = pathlib.Path(folder, "config.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | _class_of(model)))
        if model.can_generate():
            model.generation_config.save_pretrained(folder)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(pathlib.Path(folder).rglob("*"))
            if path.is_file()
        }


def _class_of(model: Any) -> dict[str, list[str]]:
    """The model's class, in the form in which save_pretrained notes it."""
    return {"architectures": [type(model).__name__]}


# ---- the version's files -----------------------------------------------------------------------


def _library() -> Any:
    try:
        return importlib.import_module("transformers")
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise errors.Unsupported(
            "gpuwm.transformers needs transformers, and there is none", _needs.TRANSFORMERS
        ) from None


def _json(mapping: Mapping, name: str) -> dict[str, Any]:
    """Reads a file that transformers wrote. Raises NotFound, and Invalid if it is not JSON of
    transformers."""
    try:
        found = json.loads(mapping.files[name], object_hook=_float_of)
    except KeyError:
        raise errors.NotFound(
            f"{mapping.version} has no {name}",
            "load a folder that has one, or publish with files=gpuwm.transformers.files(model)",
        ) from None
    except ValueError as error:
        raise errors.Invalid(f"{name} of {mapping.version} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise errors.Invalid(
            f"{name} of {mapping.version} is a JSON {type(found).__name__}, not an object"
        )
    return found


def _float_of(found: dict[str, Any]) -> Any:
    """Reads infinities and NaN, which JSON lacks: transformers writes {"__float__": "Infinity"}."""
    if found.keys() == {"__float__"} and found["__float__"] in ("Infinity", "-Infinity", "NaN"):
        return float(found["__float__"])
    return found


def _config(library: Any, mapping: Mapping, changed: dict[str, Any]) -> Any:
    text = _json(mapping, "config.json")
    kind = text.get("model_type")
    if kind not in library.CONFIG_MAPPING:
        own = " and its code is in a repository" if "auto_map" in text else ""
        raise errors.Unsupported(
            f"{mapping.version} is of model_type {kind!r}, which transformers "
            f"{library.__version__} does not have{own}",
            "build the model yourself: gpuwm.build(ref, lambda: Model(config))",
        )
    config = library.CONFIG_MAPPING[kind].from_dict(text | changed)
    method = _quantised.method_of(config)
    if method is not None and not _quantised.is_image(mapping):
        raise errors.Unsupported(
            f"{mapping.version} is quantised ({method}): transformers makes modules and tensors of "
            "its own of it as it loads",
            _AS_IMAGE,
        )
    return config


def _dtype(mapping: Mapping, config: Any, dtype: torch.dtype | str) -> torch.dtype:
    if dtype == "auto":
        dtype = config.dtype or _first_dtype(mapping)
    if isinstance(dtype, str):
        dtype = getattr(torch, dtype.removeprefix("torch."), dtype)
    if not isinstance(dtype, torch.dtype):
        raise errors.Invalid(f"dtype={dtype!r}", 'a dtype of torch, its name, or "auto"')
    return dtype


def _first_dtype(mapping: Mapping) -> torch.dtype:
    for dtype in _dtypes(mapping).values():
        if dtype.is_floating_point:
            return dtype
    return torch.get_default_dtype()


def _dtypes(mapping: Mapping) -> dict[str, torch.dtype]:
    return {name: tensor.dtype for name, tensor in mapping.state_dict().items()}


# ---- the model ---------------------------------------------------------------------------------


def _check_class(model_class: Any) -> None:
    """Raises TypeError if it is no class of transformers that makes a model of a config."""
    makers = ("from_config", "_from_config")
    if model_class is not None and not any(hasattr(model_class, name) for name in makers):
        raise lib.wrong("model_class", model_class, "a class of transformers, Auto or of a model")


def _build(library: Any, model_class: Any, config: Any, dtype: torch.dtype) -> Any:
    if model_class is None:
        names = config.architectures or ()
        model_class = next((getattr(library, n) for n in names if hasattr(library, n)), None)
        if model_class is None:
            raise errors.Invalid(
                f"the config names no model of transformers {library.__version__}: {names!r}",
                'say which: from_pretrained("llama@prod", AutoModelForCausalLM)',
            )
    # An Auto class has the first of these, the class of a model the second.
    make = getattr(model_class, "from_config", None) or model_class._from_config
    model = make(config, dtype=dtype)
    conversion.set_dtypes(model, dtype)
    return model


def _lost(mapping: Mapping, model: Any) -> str | None:
    """Why a model of transformers needs memory as it is made."""
    made = conversion.computed(model, _dtypes(mapping))
    if made:
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        return (
            f"{mapping.version} has no {made[0]}{more}, which {type(model).__name__} makes itself"
        )
    return fit.lost(model, model.state_dict())


def _bind(mapping: Mapping, model: Any, strict: bool, **options: Any) -> None:
    found = conversion.conversion(model, _dtypes(mapping))
    if found.problems:
        raise _not_in_place(mapping, found.problems)
    if strict and found.missing:
        raise _error(
            f"{type(model).__name__} and {mapping.version} don't fit, nothing was bound",
            [f"missing: the version has no {name}" for name in found.missing],
            "\nstrict=False if that is meant",
        )
    called = {ours: name for name in mapping if (ours := found.names.get(name, name)) is not None}
    if untied := conversion.untied(model, called):
        raise _error(
            f"{type(model).__name__} and {mapping.version} don't fit, nothing was bound",
            [f"missing: the version has no {name}, and its config ties none" for name in untied],
            "\ntie_word_embeddings=True, if it is the embedding",
        )
    with torch.inference_mode(False):
        conversion.tie(model, lambda name: mapping.torch(called[name]), called.keys())
    bind.bind(mapping, model, strict=False, names=found.names, **options)
    for name in conversion.computed(model, _dtypes(mapping)):
        parameter = model.get_parameter(name)
        parameter.data = parameter.data.to(mapping.torch(next(iter(mapping))).device)
        parameter.requires_grad_(False)
    if found.unexpected:
        _warn_of_unexpected(mapping, model, found.unexpected)


def _warn_of_unexpected(mapping: Mapping, model: Any, names: Sequence[str]) -> None:
    warnings.warn(
        f"{mapping.version} has tensors that {type(model).__name__} lacks, which were left out: "
        + ", ".join(_shortened(names)),
        UserWarning,
        stacklevel=4,  # the line that calls from_pretrained
    )


def _not_in_place(mapping: Mapping, problems: Sequence[str]) -> errors.Error:
    return _error(
        f"transformers {_library().__version__} changes what {mapping.version} has as it loads it: "
        "it can't be used in place, and nothing was bound",
        problems,
        _HOW,
    )


def _error(what: str, problems: Sequence[str], remedy: str) -> errors.Error:
    error = bind.BindError(f"{what}:\n  " + "\n  ".join(_shortened(problems)), remedy)
    error.problems = tuple(problems)
    return error


def _shortened(lines: Sequence[str]) -> list[str]:
    """As many lines as leave a message readable."""
    more = [f"and {len(lines) - _LINES_SHOWN} more"] if len(lines) > _LINES_SHOWN else []
    return [*lines[:_LINES_SHOWN], *more]


def _generation_config(library: Any, mapping: Mapping) -> Any:
    """The generation config, found as `from_pretrained` finds it."""
    if "generation_config.json" in mapping.files:
        return library.GenerationConfig.from_dict(_json(mapping, "generation_config.json"))
    return library.GenerationConfig.from_model_config(_json(mapping, "config.json"))
