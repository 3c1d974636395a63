"""gpuwm.transformers: models as from_pretrained makes them, on shared weights."""

from __future__ import annotations

import importlib
import json
import math
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from binding_models import within
from conftest import DEVICE, Daemon, by_torch, eventually, run_python

import gpuwm
import gpuwm.transformers
from gpuwm import _needs

transformers: Any = importlib.import_module("transformers")  # half of it has no types
AutoModel, AutoModelForCausalLM = transformers.AutoModel, transformers.AutoModelForCausalLM

pytestmark = by_torch

IDS = torch.tensor([[5, 3, 9, 60, 2, 7]], device=DEVICE)
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
CONFIGS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "llama-scaled": lambda: transformers.LlamaConfig(
        **SMALL,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2": lambda: transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64
    ),
    "t5": lambda: transformers.T5Config(
        vocab_size=64,
        d_model=32,
        d_ff=48,
        d_kv=8,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    "bert": lambda: transformers.BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    ),
    "mixtral": lambda: transformers.MixtralConfig(**SMALL, num_local_experts=4),
    "qwen2-moe": lambda: transformers.Qwen2MoeConfig(
        **SMALL, moe_intermediate_size=16, shared_expert_intermediate_size=16, num_experts=4
    ),
    "mamba2": lambda: transformers.Mamba2Config(
        vocab_size=64,
        hidden_size=32,
        state_size=8,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=8,
        n_groups=1,
        time_step_limit=(0.0, math.inf),
    ),
}
CLASSES = {"bert": transformers.AutoModelForMaskedLM, "t5": transformers.AutoModelForSeq2SeqLM}


class Saved:
    """A random model's folder, loaded by gpuwmd."""

    def __init__(self, daemon: Daemon, kind: str, dtype: Any) -> None:
        torch.manual_seed(1)
        self.auto = CLASSES.get(kind, AutoModelForCausalLM)
        model = self.auto.from_config(CONFIGS[kind](), dtype=dtype)
        with torch.no_grad():  # norms and biases too
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) / 50)
        self.folder = daemon.models / f"{kind}-{str(dtype)[6:]}"
        model.save_pretrained(self.folder, max_shard_size="20KB")
        assert len(list(self.folder.glob("*.safetensors"))) > 1
        self.ref = f"{self.folder.name}@v1"
        daemon.load_folder(self.ref, self.folder)

    def ordinary(self, **options: Any) -> Any:
        return self.auto.from_pretrained(self.folder, **options)


@pytest.fixture(scope="module")
def saved(daemon: Daemon) -> Callable[..., Saved]:
    made: dict[Any, Saved] = {}

    def get(kind: str, dtype: Any = torch.float32) -> Saved:
        if (kind, dtype) not in made:
            made[kind, dtype] = Saved(daemon, kind, dtype)
        return made[kind, dtype]

    return get


def answer(model: Any) -> Any:
    inputs = {"input_ids": IDS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = IDS
    with torch.no_grad():
        return model(**inputs).logits


def assert_same(model: Any, ordinary: Any) -> None:
    """All that makes an answer: values, dtypes, what is tied, flags, and the answers."""
    theirs = ordinary.state_dict(keep_vars=True) | dict(ordinary.named_buffers())
    ours = model.state_dict(keep_vars=True) | dict(model.named_buffers())
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype, name
        assert torch.equal(ours[name], tensor), name
    groups = [{n: id(t) for n, t in each.items()} for each in (ours, theirs)]
    for one in ours:
        for other in ours:
            tied = [ids[one] == ids[other] for ids in groups]
            assert tied[0] == tied[1], (one, other)
    assert type(model) is type(ordinary)
    assert not model.training
    assert model.dtype == ordinary.dtype
    mine, other = model.config.to_dict(), ordinary.config.to_dict()
    for config in (mine, other):
        config.pop("_name_or_path", None)
    assert mine == other
    assert torch.equal(answer(model), answer(ordinary))
    if model.can_generate():
        assert model.generation_config.to_dict() == ordinary.generation_config.to_dict()
        options = {"max_new_tokens": 8, "do_sample": False}
        assert torch.equal(model.generate(IDS, **options), ordinary.generate(IDS, **options))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        *[(kind, "float32") for kind in ("llama", "gpt2", "bert", "mamba2")],
        *[(kind, "bfloat16") for kind in ("llama-scaled", "qwen2", "t5")],
    ],
)
def test_as_from_pretrained_has_it(saved: Callable[..., Saved], kind: str, dtype: str) -> None:
    version = saved(kind, getattr(torch, dtype))
    mapping = gpuwm.attach(version.ref)
    model = gpuwm.transformers.from_pretrained(mapping, version.auto)
    assert_same(model, version.ordinary())
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert names <= set(within(mapping, model))
    assert mapping.check(model).lost == ()


def test_modules_that_stay_in_float32(saved: Callable[..., Saved], daemon: Daemon) -> None:
    """T5 does where the others are float16, and its files have them so."""
    loaded = saved("t5", torch.bfloat16).ordinary(dtype=torch.float16)
    folder = daemon.models / "half"
    loaded.save_pretrained(folder)
    daemon.load_folder("half@v1", folder)
    model = gpuwm.transformers.from_pretrained("half@v1")
    assert {p.dtype for p in model.parameters()} == {torch.float16, torch.float32}
    ordinary = type(loaded).from_pretrained(folder)
    assert_same(model, ordinary)


# ---- what can't be in place --------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mixtral", "qwen2-moe"])
def test_experts_that_loading_puts_together_are_told(
    saved: Callable[..., Saved], kind: str
) -> None:
    version = saved(kind)
    with pytest.raises(gpuwm.BindError) as caught:
        gpuwm.transformers.from_pretrained(version.ref, version.auto)
    assert len(caught.value.problems) == 4
    problem = caught.value.problems[1]
    assert "made at load: model.layers.0.mlp.experts.gate_up_proj of model.layers.0." in problem
    assert "and 7 more (MergeModulelist, Concatenate)" in problem
    assert "gpuwm.publish(model" in str(caught.value)


def test_what_one_process_loaded_is_in_place_for_all(saved: Callable[..., Saved]) -> None:
    """The way that the error tells."""
    version = saved("mixtral")
    ordinary, published = version.ordinary(), version.ordinary()
    gpuwm.publish(published, "mixtral@loaded", files=gpuwm.transformers.files(published))
    mapping = gpuwm.attach("mixtral@loaded")
    model = gpuwm.transformers.from_pretrained(mapping)
    assert_same(model, ordinary)
    assert "model.layers.0.mlp.experts.gate_up_proj" in within(mapping, model)
    assert torch.equal(answer(published), answer(ordinary))


def test_another_dtype_is_told(saved: Callable[..., Saved]) -> None:
    version = saved("llama")
    with pytest.raises(gpuwm.BindError) as caught:
        gpuwm.transformers.from_pretrained(version.ref, version.auto, dtype="bfloat16")
    assert caught.value.problems == (
        "converted at load: lm_head.weight and 20 more: "
        "torch.float32 in the version, torch.bfloat16 in the model",
    )
    for dtype in ("bfloat17", "nn", ""):
        with pytest.raises(gpuwm.Invalid, match="dtype="):
            gpuwm.transformers.from_pretrained(version.ref, version.auto, dtype=dtype)


def changed(version: Saved, name: str, **config: Any) -> pathlib.Path:
    """A folder with the same weights beside it, and another config."""
    folder = version.folder.parent / name
    folder.mkdir()
    for path in version.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(text | config))
    return folder


@pytest.mark.parametrize(
    ("name", "config", "error", "says"),
    [
        (
            "quantised",
            {"quantization_config": {"quant_method": "gptq", "bits": 4}},
            gpuwm.Unsupported,
            r"quantised \(gptq\).*gpuwm.attach\(ref\).save\(folder\)",
        ),
        ("unknown", {"model_type": "own"}, gpuwm.Unsupported, "model_type 'own'.*gpuwm.build"),
        ("nameless", {"architectures": None}, gpuwm.Invalid, "names no model"),
        ("wide", {"hidden_size": 64}, gpuwm.BindError, r"shape: .* \[64, 64\] in the model"),
        ("deep", {"num_hidden_layers": 3}, gpuwm.BindError, "no memory: parameter model.layers.2"),
    ],
)
def test_a_config_that_does_not_fit(
    saved: Callable[..., Saved], daemon: Daemon, name: str, config: Any, error: Any, says: str
) -> None:
    daemon.load_folder(f"{name}@v1", changed(saved("llama"), name, **config))
    with pytest.raises(error, match=f"(?s){says}"):
        gpuwm.transformers.from_pretrained(f"{name}@v1")
    eventually(lambda: daemon.leases(f"{name}@v1") == 0)


def test_a_version_without_files(checkpoint: Callable[..., str]) -> None:
    ref = checkpoint({"x": ("F32", (1,), bytes(4))})
    with pytest.raises(gpuwm.NotFound, match="has no config.json"):
        gpuwm.transformers.from_pretrained(ref)
    with pytest.raises(gpuwm.NotFound, match="has no tokenizer"):
        gpuwm.transformers.tokenizer(ref)
    ref = checkpoint({"x": ("F32", (1,), bytes(4))}, {"config.json": b"{"})
    with pytest.raises(gpuwm.Invalid, match="config.json of .* is not JSON"):
        gpuwm.transformers.from_pretrained(ref)
    ref = checkpoint({"x": ("F32", (1,), bytes(4))}, {"config.json": b"[1]"})
    with pytest.raises(gpuwm.Invalid, match="config.json of .* is a JSON list, not an object"):
        gpuwm.transformers.from_pretrained(ref)


# ---- names -------------------------------------------------------------------------------------


def save(folder: pathlib.Path, model: Any, tensors: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    folder.mkdir()
    save_file({n: t.detach().clone() for n, t in tensors.items()}, folder / "model.safetensors")
    for name, content in gpuwm.transformers.files(model).items():
        (folder / name).write_bytes(content)


def test_names_that_loading_changes_follow_in_place(
    saved: Callable[..., Saved], daemon: Daemon
) -> None:
    """As old checkpoints of BERT have them; and private copies follow a switch by their names."""
    ordinary = saved("bert").ordinary()
    old = {
        n.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for n, t in ordinary.named_parameters()
    }
    assert any("gamma" in name for name in old)
    for tag, factor in (("v1", 1), ("v2", 2)):
        folder = daemon.models / f"old-{tag}"
        save(folder, ordinary, {name: tensor * factor for name, tensor in old.items()})
        daemon.load_folder(f"old@{tag}", folder)
    mapping = gpuwm.attach("old@v1")
    model = gpuwm.transformers.from_pretrained(mapping, private=["*LayerNorm*"])
    assert_same(model, ordinary)
    mapping.switch("old@v2")
    norm = "bert.encoder.layer.0.output.LayerNorm.weight"
    assert torch.equal(model.get_parameter(norm), ordinary.get_parameter(norm) * 2)
    other = gpuwm.transformers.from_pretrained(mapping)
    assert norm in within(mapping, other)


def test_what_the_model_lacks_is_left_out_and_told(saved: Callable[..., Saved]) -> None:
    """A model without its head."""
    version = saved("llama")
    with pytest.warns(UserWarning, match="LlamaModel lacks, .* left out: lm_head.weight") as told:
        model = gpuwm.transformers.from_pretrained(version.ref, AutoModel)
    assert [warning.filename for warning in told] == [__file__]
    ordinary = AutoModel.from_pretrained(version.folder)
    with torch.no_grad():
        assert torch.equal(model(IDS).last_hidden_state, ordinary(IDS).last_hidden_state)


def test_a_buffer_of_an_older_transformers_is_left_out(
    saved: Callable[..., Saved], daemon: Daemon
) -> None:
    """The model computes it, and has it under the same name, though with another dtype."""
    ordinary = saved("bert").ordinary()
    tensors = dict(ordinary.named_parameters())
    ids = torch.arange(7, device=DEVICE).reshape(1, 7)
    old = {"bert.embeddings.position_ids": ids, "bert.embeddings.token_type_ids": ids.float()}
    save(daemon.models / "ids", ordinary, tensors | old)
    daemon.load_folder("ids@v1", daemon.models / "ids")
    with pytest.warns(UserWarning, match=r"embeddings\.position_ids, bert\.embeddings\.token_type"):
        model = gpuwm.transformers.from_pretrained("ids@v1")
    assert_same(model, ordinary)


def test_a_buffer_that_the_version_lacks_is_an_error(daemon: Daemon) -> None:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
    ordinary = AutoModel.from_config(config)
    mean = "embedder.embedder.normalization.running_mean"
    tensors = {name: tensor for name, tensor in ordinary.state_dict().items() if name != mean}
    save(daemon.models / "norms", ordinary, tensors)
    daemon.load_folder("norms@v1", daemon.models / "norms")
    with pytest.raises(gpuwm.BindError, match=f"missing: the version has no {mean}"):
        gpuwm.transformers.from_pretrained("norms@v1")
    model = gpuwm.transformers.from_pretrained("norms@v1", strict=False)
    assert torch.equal(model.get_buffer(mean), torch.zeros(8))


def marian() -> tuple[Any, Any]:
    """save_pretrained leaves out its sinusoids."""
    ends = {
        f"{end}_{what}": count
        for end in ("encoder", "decoder")
        for what, count in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 32))
    }
    config = transformers.MarianConfig(vocab_size=64, d_model=16, pad_token_id=1, **ends)
    return transformers.MarianMTModel(config), r"embed_positions\.weight"


def swin() -> tuple[Any, Any]:
    """Checkpoints of GroundingDINO have no norm of it, since older backbones had none."""
    config = transformers.SwinConfig(
        image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 1], window_size=4
    )
    return transformers.SwinBackbone(config), r"swin\.layernorm"


@pytest.mark.parametrize("kind", [marian, swin])
def test_what_a_model_makes_without_a_file_is_made(
    daemon: Daemon, kind: Callable[[], tuple[Any, str]]
) -> None:
    made, unsaved = kind()
    tensors = {n: t for n, t in made.named_parameters() if not re.search(unsaved, n)}
    ref, ordinary = load(daemon, f"makes-{kind.__name__}", made, tensors)
    with pytest.warns(UserWarning, match=f"{ref} has no .*{unsaved}.* and 1 more, which"):
        model = gpuwm.transformers.from_pretrained(ref)
    mine, theirs = dict(model.named_parameters()), dict(ordinary.named_parameters())
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name].cpu(), theirs[name]) for name in theirs)
    assert {str(each.device.type) for each in mine.values()} == {torch.device(DEVICE).type}
    assert set(tensors) <= set(gpuwm.mapping_of(model).check(model).shared)


# ---- ties --------------------------------------------------------------------------------------

T5 = {
    "vocab_size": 64,
    "d_model": 32,
    "d_ff": 48,
    "d_kv": 8,
    "num_layers": 1,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "feed_forward_proj": "gated-gelu",
}
TIED_BY_CONFIG: dict[str, Callable[[], Any]] = {
    "t5": lambda: transformers.T5Config(**T5),
    "flan-t5": lambda: transformers.T5Config(**T5, tie_word_embeddings=False),
    "mt5": lambda: transformers.MT5Config(**T5),
    "umt5": lambda: transformers.UMT5Config(**T5),
    "llama": lambda: transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "qwen2": lambda: transformers.Qwen2Config(**SMALL, tie_word_embeddings=True),
}


def tied_by_config(kind: str) -> Any:
    """A model whose config ties its weights."""
    torch.manual_seed(2)
    auto = transformers.AutoModelForSeq2SeqLM if "t5" in kind else AutoModelForCausalLM
    return auto.from_config(TIED_BY_CONFIG[kind]())


def load(daemon: Daemon, name: str, model: Any, tensors: dict[str, Any]) -> tuple[str, Any]:
    """What loads these tensors with the model's config: a version, and transformers' model."""
    folder = daemon.models / name
    save(folder, model, tensors)
    daemon.load_folder(f"{name}@v1", folder)
    return f"{name}@v1", type(model).from_pretrained(folder)


@pytest.mark.parametrize("kind", TIED_BY_CONFIG)
def test_a_head_of_its_own_although_the_config_ties_it(daemon: Daemon, kind: str) -> None:
    """Also of a Llama whose files have another head than its config says
    (huggingface/transformers pull request 42612)."""
    made = tied_by_config(kind)
    tensors = dict(made.named_parameters()) | {"lm_head.weight": torch.randn(64, 32)}
    ref, ordinary = load(daemon, f"own-head-{kind}", made, tensors)
    model = gpuwm.transformers.from_pretrained(ref)
    assert torch.equal(model.lm_head.weight.cpu(), tensors["lm_head.weight"])
    assert_same(model, ordinary)
    assert gpuwm.attach(ref).check(model).lost == ()
    untied = gpuwm.transformers.from_pretrained(ref, tie_word_embeddings=False)
    assert torch.equal(answer(untied), answer(ordinary))


@pytest.mark.parametrize("kind", TIED_BY_CONFIG)
def test_a_head_that_equals_the_embedding_is_tied(daemon: Daemon, kind: str) -> None:
    made = tied_by_config(kind)
    tensors = dict(made.named_parameters(remove_duplicate=False))
    assert "lm_head.weight" in tensors
    ref, ordinary = load(daemon, f"same-head-{kind}", made, tensors)
    model = gpuwm.transformers.from_pretrained(ref)
    assert model.lm_head.weight is model.get_input_embeddings().weight
    assert_same(model, ordinary)


@pytest.mark.parametrize("kind", ["t5", "umt5", "llama"])
def test_a_head_without_the_embedding_that_it_is_tied_to(daemon: Daemon, kind: str) -> None:
    made = tied_by_config(kind)
    tensors = dict(made.named_parameters())
    embedding = "shared.weight" if kind != "llama" else "model.embed_tokens.weight"
    tensors["lm_head.weight"] = tensors.pop(embedding)
    ref, ordinary = load(daemon, f"head-only-{kind}", made, tensors)
    assert_same(gpuwm.transformers.from_pretrained(ref), ordinary)


def test_embeddings_below_the_decoder_only(daemon: Daemon) -> None:
    """As madlad400 has them: which of them the encoder gets differs from release to release
    (huggingface/transformers issue 48154)."""
    made = tied_by_config("t5")
    tensors = dict(made.named_parameters())
    tensors["decoder.embed_tokens.weight"] = tensors.pop("shared.weight")
    tensors["lm_head.weight"] = torch.randn(64, 32)
    ref, ordinary = load(daemon, "madlad", made, tensors)
    assert_same(gpuwm.transformers.from_pretrained(ref), ordinary)


def test_a_config_above_says_tied_and_the_file_has_a_head(daemon: Daemon) -> None:
    """A model of text and images whose outer config says tied, and the inner one untied
    (vllm-project/vllm issue 51063)."""
    text = {**SMALL, "model_type": "mistral", "tie_word_embeddings": False, "head_dim": 8}
    vision = {
        "model_type": "pixtral",
        "hidden_size": 32,
        "intermediate_size": 48,
        "head_dim": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "image_size": 28,
        "patch_size": 14,
    }
    config = transformers.Mistral3Config(text_config=text, vision_config=vision)
    assert config.tie_word_embeddings
    made = transformers.Mistral3ForConditionalGeneration(config)
    tensors = dict(made.named_parameters()) | {"lm_head.weight": torch.randn(64, 32)}
    ref, ordinary = load(daemon, "mistral3", made, tensors)
    assert_same(gpuwm.transformers.from_pretrained(ref), ordinary)


def test_a_config_that_says_untied_and_a_file_without_a_head(daemon: Daemon) -> None:
    """transformers makes such a head of random numbers (QwenLM/Qwen3-VL-Embedding issue 89). The
    remedy is followed."""
    made = tied_by_config("llama")
    tensors = dict(made.named_parameters())
    made.config.tie_word_embeddings = False
    ref, _ = load(daemon, "no-head", made, tensors)
    with pytest.raises(gpuwm.BindError, match="(?s)no lm_head.weight, and.*_embeddings=True"):
        gpuwm.transformers.from_pretrained(ref)
    ordinary = type(made).from_pretrained(daemon.models / "no-head", tie_word_embeddings=True)
    assert_same(gpuwm.transformers.from_pretrained(ref, tie_word_embeddings=True), ordinary)


@pytest.mark.parametrize("private", ["lm_head.*", "*embed_tokens*"])
def test_private_copies_of_a_tied_and_of_an_own_head(daemon: Daemon, private: str) -> None:
    for own in (False, True):
        made = tied_by_config("llama")
        tensors = dict(made.named_parameters())
        if own:
            tensors["lm_head.weight"] = torch.randn(64, 32)
        name = f"private-{'own' if own else 'tied'}-{private[0] == '*'}"
        ref, ordinary = load(daemon, name, made, tensors)
        model = gpuwm.transformers.from_pretrained(ref, private=[private])
        assert_same(model, ordinary)
        found = gpuwm.attach(ref).check(model)
        names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        assert len(names & set(found.private)) == (1 if own else 2)
        assert found.lost == ()


def test_a_head_of_another_shape_is_told(daemon: Daemon) -> None:
    made = tied_by_config("llama")
    tensors = dict(made.named_parameters())
    tensors["model.embed_tokens.weight"] = torch.randn(60, 32)
    tensors["lm_head.weight"] = torch.randn(64, 32)
    save(daemon.models / "other-shape", made, tensors)
    daemon.load_folder("other-shape@v1", daemon.models / "other-shape")
    with pytest.raises(gpuwm.BindError, match=r"shape: .* \[64, 32\] in the model, \[60, 32\]"):
        gpuwm.transformers.from_pretrained("other-shape@v1")


def test_an_own_head_is_published(daemon: Daemon) -> None:
    made = tied_by_config("flan-t5")
    tensors = dict(made.named_parameters()) | {"lm_head.weight": torch.randn(64, 32)}
    _, ordinary = load(daemon, "published-head", made, tensors)
    ordinary.to(DEVICE)
    expected = answer(ordinary)
    gpuwm.publish(ordinary, "own@v1", files=gpuwm.transformers.files(ordinary))
    model = gpuwm.transformers.from_pretrained("own@v1")
    assert model.lm_head.weight is not model.shared.weight
    assert torch.equal(answer(model), expected)


# ---- the rest of a worker ----------------------------------------------------------------------


def test_an_option_of_the_config(saved: Callable[..., Saved]) -> None:
    version = saved("llama")
    model = gpuwm.transformers.from_pretrained(version.ref, attn_implementation="eager")
    assert model.config._attn_implementation == "eager"
    assert torch.equal(answer(model), answer(version.ordinary(attn_implementation="eager")))


def test_the_tokenizer_of_the_version(saved: Callable[..., Saved], daemon: Daemon) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: i for i, word in enumerate(["[UNK]", "shared", "weights", "are", "small"])}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    made.chat_template = "{{ messages[0].content }}"
    version = saved("llama")
    folder = changed(version, "words")
    for name, content in gpuwm.transformers.files(version.ordinary(), made).items():
        (folder / name).write_bytes(content)
    daemon.load_folder("words@v1", folder)
    tokenizer = gpuwm.transformers.tokenizer("words@v1")
    assert tokenizer("weights are shared").input_ids == [2, 3, 1]
    assert tokenizer.decode([4, 2]) == "small weights"
    assert tokenizer.chat_template == made.chat_template
    eventually(lambda: daemon.leases("words@v1") == 0)


@pytest.mark.parametrize(("tag", "name"), [("v1", "{}/evil"), ("v2", "../evil"), ("v3", "..")])
def test_files_of_a_version_are_written_nowhere_else(
    daemon: Daemon, tmp_path: pathlib.Path, tag: str, name: str
) -> None:
    files = {"tokenizer.json": b"{}", name.format(tmp_path): b"x"}
    gpuwm.publish({"a": torch.zeros(4, device=DEVICE)}, f"escapes@{tag}", files=files)
    with pytest.raises(gpuwm.Invalid, match="which no folder can have"):
        gpuwm.transformers.tokenizer(f"escapes@{tag}")
    assert not list(tmp_path.iterdir())


def test_files_of_every_kind_of_tokenizer_are_the_versions(checkpoint: Callable[..., str]) -> None:
    names = ("spiece.model", "sentencepiece.bpe.model", "processor_config.json", "vocab.txt")
    ref = checkpoint({"x": ("F32", (1,), bytes(4))}, {name: name.encode() for name in names})
    assert dict(gpuwm.attach(ref).files) == {name: name.encode() for name in names}


ALONE = """
import os, socket, sys
def refused(*arguments, **options):
    raise AssertionError("a connection to the network")
socket.getaddrinfo = socket.create_connection = refused
os.chdir("/")
import gpuwm, transformers
transformers.logging.set_verbosity_error()
model = gpuwm.transformers.from_pretrained(sys.argv[1], transformers.AutoModelForCausalLM)
print(sum(p.is_meta for p in model.parameters()), type(model).__name__)
"""


def test_a_worker_needs_neither_folder_nor_network(saved: Callable[..., Saved]) -> None:
    assert run_python(ALONE, saved("llama").ref) == "0 LlamaForCausalLM\n"


def test_without_transformers_it_is_said() -> None:
    code = """
import sys
sys.modules["transformers"] = None
import gpuwm.transformers
try:
    gpuwm.transformers.tokenizer("m")
except gpuwm.Unsupported as error:
    print(error)
"""
    assert f"there is none: {_needs.TRANSFORMERS}\n" in run_python(code)
