"""`image.module` makes the published module without the code that made it."""

from __future__ import annotations

import collections
import functools
import itertools
import json
import pathlib
import sys
from typing import Any

import pytest
import torch
from conftest import DEVICE, Daemon, by_torch, run_python
from image_models import IDS, Holder, Kernel, Scales, loaded, numbers
from torch import nn

import gpuwm
import gpuwm.image
from gpuwm.image import record, shells

pytestmark = [by_torch, pytest.mark.usefixtures("daemon")]

tags = itertools.count(1)


def published(model: nn.Module, **options: Any) -> str:
    name = f"module@{next(tags)}"
    gpuwm.image.publish(model, name, makeable=True, **options)
    return name


class Sizes(dict[str, int]):
    """A container without a constructor of its own."""


class Named(nn.Module):
    """What refers to functions, to other modules, and to a device."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).made += 1
        self.first = nn.Linear(4, 4)
        self.tied = self.first
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.BatchNorm1d(4)])
        self.missing: nn.Module | None = None
        self.order = [self.layers[1], self.first]
        self.activate = nn.functional.relu
        self.kind = nn.ReLU
        self.where = torch.device(DEVICE)
        self.scaled = functools.partial(torch.mul, other=torch.full((4,), 2.0))
        self.again = self.second
        self.sizes = Sizes(a=1)
        self.ordered = collections.OrderedDict(b=2)
        self.eval()

    def second(self, hidden: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layers[0](hidden)
        return made

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.activate(self.scaled(self.layers[1](self.again(self.first(hidden)))))


def test_it_computes_the_same_and_no_constructor_ran() -> None:
    with torch.device(DEVICE):
        model = Named()
        hidden = torch.randn(3, 4)
    expected = model(hidden)
    name, made = published(model), Named.made
    found: Any = gpuwm.image.module(name)
    assert Named.made == made
    assert torch.equal(found(hidden), expected)
    assert list(found.state_dict()) == list(model.state_dict())
    assert found.tied is found.first
    assert found.order == [found.layers[1], found.first]
    assert found.again.__self__ is found
    assert (found.activate, found.kind) == (nn.functional.relu, nn.ReLU)
    assert found.where.type == torch.device(DEVICE).type
    assert (type(found.sizes), type(found.ordered)) == (Sizes, collections.OrderedDict)
    assert not found.training
    assert gpuwm.mapping_of(found).torch("first.weight").data_ptr() == found.first.weight.data_ptr()
    with pytest.raises(gpuwm.WriteError):
        found.first.weight.zero_()


@pytest.mark.parametrize(
    "model",
    [
        nn.TransformerEncoderLayer(8, 2, batch_first=True),
        nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.GroupNorm(1, 3), nn.Flatten()),
        nn.MultiheadAttention(8, 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_modules_of_torch(model: nn.Module) -> None:
    model.to(DEVICE).eval()
    expected = gpuwm.image.describe(model)
    found = gpuwm.image.module(published(model))
    assert gpuwm.image.differences(expected, found) == []


def test_helper_objects_come_without_their_constructors() -> None:
    model = loaded()
    found = gpuwm.image.module(published(model))
    assert torch.equal(found(IDS), model(IDS))
    assert gpuwm.image.differences(gpuwm.image.describe(model), found) == []


class Closing:
    def __del__(self) -> None:
        raise AssertionError("it was never made")


class Plain(collections.defaultdict[str, int]):
    """It has a constructor of its own."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)


def altered(value: int = 1) -> int:
    return value


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (lambda: 1, "function test_image_module.<lambda>"),
        ({Closing, lambda: 1}, "function test_image_module.<lambda>"),
        (Closing, "Closing, which another"),
        (functools.partial(lambda: 1), "<lambda>"),
        (Plain(int), "test_image_module.Plain"),
        (type("Local", (), {}), "class test_image_module.Local"),
    ],
)
def test_what_could_not_be_made_is_not_published(held: Any, said: str) -> None:
    held = held() if held is Closing else held
    with pytest.raises(gpuwm.Unsupported) as error:
        published(Holder(tensor=numbers(2), held=held))
    assert said in str(error.value)
    assert "held" in str(error.value)
    if isinstance(held, Closing):
        type(held).__del__ = lambda _: None  # type: ignore[method-assign]


def test_a_module_of_a_local_class_is_not_published() -> None:
    class Local(nn.Module):
        pass

    with pytest.raises(gpuwm.Unsupported, match=r"module: inner is a .*<locals>\.Local, which"):
        published(Holder(tensor=numbers(2), inner=Local()))


def test_what_this_process_has_not_imported(tmp_path: pathlib.Path) -> None:
    name = f"module@{next(tags)}"
    (tmp_path / "elsewhere.py").write_text(
        "from torch import nn\nclass There(nn.Linear): pass\nclass Object: pass\n"
    )
    run_python(
        "import sys, gpuwm.image; sys.path.insert(0, sys.argv[1]); import elsewhere\n"
        "gpuwm.image.publish(elsewhere.There(2, 2), sys.argv[2], makeable=True)\n"
        "model = elsewhere.nn.Linear(2, 2); model.held = elsewhere.Object(); model.held.x = 1\n"
        "gpuwm.image.publish(model, sys.argv[2] + 'b', makeable=True)\n",
        str(tmp_path),
        name,
    )
    with pytest.raises(gpuwm.Unsupported, match=r"the module is a elsewhere\.There, which this"):
        gpuwm.image.module(name)
    with pytest.raises(gpuwm.BindError, match=r"held is a elsewhere\.Object in the version"):
        gpuwm.image.module(name + "b")


def rewritten(name: str, change: Any) -> str:
    """The same image with another record."""
    mapping = gpuwm.attach(name)
    content = json.loads(mapping.files[record.FILE])
    change(content)
    again = f"module@{next(tags)}"
    files = {record.FILE: json.dumps(content).encode()}
    gpuwm.publish(dict(mapping.state_dict()), again, files=files, bind=False)
    return again


def damaged(model: nn.Module, change: Any) -> str:
    with pytest.raises(gpuwm.Damaged) as error:
        gpuwm.image.module(rewritten(published(model), change))
    return str(error.value)


def test_a_record_whose_modules_have_no_end() -> None:
    def change(content: Any) -> None:
        content["nodes"][1][3].append(["module", "up", {"node": 0}])

    assert "holds itself" in damaged(nn.Sequential(nn.Linear(2, 2)), change)


@pytest.mark.parametrize("held", [1, {"node": 2}, {"tensor": 0}, "text"])
def test_a_record_whose_module_is_none(held: Any) -> None:
    def change(content: Any) -> None:
        content["nodes"].append(["x", "dict", 0, []])
        content["nodes"][0][3].append(["module", "up", held])

    assert "up is no module" in damaged(nn.Sequential(nn.Linear(2, 2)), change)


def test_a_record_that_would_change_a_function_of_the_process() -> None:
    def change(content: Any) -> None:
        node = next(node for node in content["nodes"] if node[1] == "function")
        node[3][0][2] = 2

    name = rewritten(published(Holder(tensor=numbers(2), held=altered)), change)
    with pytest.raises(gpuwm.BindError, match="held is a test_image_module.altered in the version"):
        gpuwm.image.module(name)
    assert altered() == 1


def test_containers_of_helper_objects() -> None:
    model = Holder(
        kernels=[Kernel(numbers(2), 3), Kernel(numbers(3), 4)],
        scales={"a": Scales(numbers(2)), 7: (1, numbers(2))},
    )
    found: Any = gpuwm.image.module(published(model))
    assert [kernel.width for kernel in found.kernels] == [3, 4]
    assert torch.equal(found.scales["a"].weight, numbers(2))
    assert torch.equal(found.scales[7][1], numbers(2))


def test_a_program_and_its_children_call_a_class_the_same(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import multiprocessing as mp, sys, torch, gpuwm, gpuwm.image\n"
        "class Own(torch.nn.Linear): pass\n"
        "def child(name):\n"
        "    gpuwm.image.publish(Own(2, 2), name, makeable=True)\n"
        "if __name__ == '__main__':\n"
        "    process = mp.get_context('spawn').Process(target=child, args=(sys.argv[1],))\n"
        "    process.start(); process.join()\n"
        "    print(type(gpuwm.image.module(sys.argv[1])).__qualname__)\n"
    )
    import subprocess
    import sys

    told = subprocess.run(
        [sys.executable, script, f"module@{next(tags)}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout == "Own\n", told.stderr


def test_a_record_that_would_call_another_constructor() -> None:
    def change(content: Any) -> None:
        content["configs"] = {"": {"class": "builtins.dict", "fields": {}, "attention": None}}

    name = rewritten(published(nn.Linear(2, 2)), change)
    with pytest.raises(gpuwm.Unsupported, match="with a configuration builtins.dict, which"):
        gpuwm.image.module(name)


@pytest.mark.parametrize("configs", [[], {"": 1}, {"": {"class": 1}}])
def test_a_record_whose_configurations_are_none(configs: Any) -> None:
    def change(content: Any) -> None:
        content["configs"] = configs

    assert "configuration" in damaged(nn.Linear(2, 2), change)


def test_a_model_of_transformers_is_made_from_its_config(daemon: Daemon) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=32,
        attn_implementation="eager",
    )
    model = transformers.LlamaForCausalLM(config).eval().to(DEVICE)
    ids = torch.arange(4, device=DEVICE)[None]
    found: Any = gpuwm.image.module(published(Holder(inner=model, tensor=numbers(2)))).inner
    assert torch.equal(found(ids).logits, model(ids).logits)
    assert found.config.to_dict() == model.config.to_dict()
    assert found.config._attn_implementation == "eager"
    assert not found.training


@pytest.mark.parametrize(
    "said",
    [
        *("this.C", "transformers.models.bert.convert_bert_token_dropping_original.C"),
        *("transformers.models.gpt2.modeling_gpt2.C.D", "transformers.models.no.modeling_no.C"),
    ],
)
def test_only_modules_of_transformers_models_are_imported(said: str) -> None:
    pytest.importorskip("transformers")
    before = set(sys.modules)
    shells.import_model(said)
    assert set(sys.modules) == before


def test_what_holds_a_model_of_transformers_may_hold_its_config() -> None:
    class_of = pytest.importorskip("transformers")
    config = class_of.BertConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=8
    )
    bert = class_of.BertModel(config).eval().to(DEVICE)
    found: Any = gpuwm.image.module(published(Holder(bert=bert, config=bert.config)))
    assert found.config is found.bert.config
    other = class_of.BertConfig(hidden_size=16, num_attention_heads=2)
    with pytest.raises(gpuwm.Unsupported, match=r"config is a .*BertConfig that is no model's"):
        published(Holder(bert=bert, config=other))
