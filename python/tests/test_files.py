"""The files of a version in a folder of their own, as libraries that read paths open them."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from typing import Any

import pytest
import torch
import transformers as typed_transformers
from conftest import DEVICE, Daemon, eventually

import gpuwm
import gpuwm.transformers

transformers: Any = typed_transformers  # its functions have no types, or others

PARTS = {
    "config.json": b"{}",
    "1_Pooling/config.json": b'{"word_embedding_dimension": 4}',
    "additional_chat_templates/tool_use.jinja": b"tools",
    "modeling_tiny.py": b"raise SystemExit('this code was run')",
    "empty.txt": b"",
}


@pytest.fixture(scope="module")
def version(daemon: Daemon) -> str:
    gpuwm.publish({"a": torch.zeros(4, device=DEVICE)}, "files@v1", bind=False, files=PARTS)
    return "files@v1"


def contents(folder: str | pathlib.Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def test_the_folder_has_all_files_and_is_this_users(version: str, daemon: Daemon) -> None:
    umask = os.umask(0)
    try:
        with gpuwm.files(version) as folder, gpuwm.files(version) as other:
            assert folder != other
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
            assert contents(folder) == contents(other) == PARTS
    finally:
        os.umask(umask)
    assert not os.path.exists(folder)
    eventually(lambda: daemon.leases(version) == 0)


def test_the_folder_stays_as_long_as_the_result(version: str) -> None:
    with gpuwm.attach(version) as w:
        held = gpuwm.files(w)
    assert contents(held.name) == PARTS
    held.cleanup()
    assert not os.path.exists(held.name)


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("absolute", ["/tmp/gpuwm-evil"]),
        ("up", ["a/../../gpuwm-evil"]),
        ("dot", ["a/./b"]),
        ("empty", ["a//b"]),
        ("slash", ["a/"]),
        ("both", ["a", "a/b"]),
        ("long", ["n" * 256]),
    ],
)
def test_names_that_no_folder_can_have(
    daemon: Daemon,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: pathlib.Path,
    tag: str,
    names: list[str],
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = dict.fromkeys(names, b"x")
    gpuwm.publish({"a": torch.zeros(4, device=DEVICE)}, f"bad-names@{tag}", bind=False, files=files)
    with pytest.raises(gpuwm.Invalid, match="which no folder can have"):
        gpuwm.files(f"bad-names@{tag}")
    assert not list(tmp_path.iterdir())


# ---- from a checkpoint's folder ----------------------------------------------------------------


class Checkpoint:
    """A folder with one small tensor beneath gpuwmd's root, to put files beside it."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.daemon, self.ref = daemon, f"{name}@v1"
        self.folder = daemon.models / name
        self.folder.mkdir()
        header = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
        (self.folder / "model.safetensors").write_bytes(
            len(header).to_bytes(8, "little") + header + b"x"
        )

    def load(self) -> list[str]:
        """Returns the job's notes."""
        self.daemon.load_folder(self.ref, self.folder)
        with gpuwm.connect(admin=True) as client:
            return list(client.jobs()[-1]["notes"])


@pytest.fixture
def checkpoint(daemon: Daemon, request: pytest.FixtureRequest) -> Checkpoint:
    return Checkpoint(daemon, "files-" + request.node.name.partition("[")[0][5:40])


def words() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    inner = Tokenizer(models.WordLevel({"[UNK]": 0, "shared": 1, "weights": 2}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


def test_a_tokenizer_keeps_all_of_its_chat_templates(checkpoint: Checkpoint) -> None:
    tokenizer = words()
    tokenizer.chat_template = {"default": "plain", "tool_use": "tools"}
    tokenizer.save_pretrained(checkpoint.folder)
    notes = checkpoint.load()
    found = gpuwm.transformers.tokenizer(checkpoint.ref)
    assert found.chat_template == tokenizer.chat_template
    assert not [note for note in notes if note.startswith("left out")]


def test_published_files_have_subfolders(daemon: Daemon) -> None:
    tokenizer = words()
    tokenizer.chat_template = {"default": "plain", "tool_use": "tools"}
    model = transformers.BertModel(
        transformers.BertConfig(
            hidden_size=8,
            num_attention_heads=2,
            intermediate_size=8,
            num_hidden_layers=1,
            vocab_size=6,
        )
    )
    files = gpuwm.transformers.files(model, tokenizer)
    assert files["additional_chat_templates/tool_use.jinja"] == b"tools"
    gpuwm.publish(model.to(DEVICE), "templates@v1", files=files)
    found = gpuwm.transformers.tokenizer("templates@v1")
    assert found.chat_template == tokenizer.chat_template


def test_code_beside_a_tokenizer_is_run_only_if_the_caller_says_so(checkpoint: Checkpoint) -> None:
    ran = checkpoint.folder.parent / "ran"
    words().save_pretrained(checkpoint.folder)
    path = checkpoint.folder / "tokenizer_config.json"
    found = json.loads(path.read_text())
    found["auto_map"] = {"AutoTokenizer": [None, "tokenization_own.Own"]}
    found["tokenizer_class"] = "Own"
    path.write_text(json.dumps(found))
    (checkpoint.folder / "tokenization_own.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from transformers import PreTrainedTokenizerFast\n"
        "class Own(PreTrainedTokenizerFast):\n    pass\n"
    )
    checkpoint.load()
    with pytest.raises(ValueError, match="trust_remote_code"):
        gpuwm.transformers.tokenizer(checkpoint.ref)
    assert not ran.exists()
    found = gpuwm.transformers.tokenizer(checkpoint.ref, trust_remote_code=True)
    assert found("shared weights").input_ids == [1, 2]
    assert ran.exists()


# ---- other libraries, which may not be installed -------------------------------------------------


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries of the hub refuse to connect."""
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)


def small_bert(folder: pathlib.Path) -> None:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "shared", "weights"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=8,
        num_hidden_layers=1,
        vocab_size=len(vocabulary),
    )
    torch.manual_seed(3)
    transformers.BertModel(config).save_pretrained(folder)


@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("default")  # of these libraries
def test_sentence_transformers_opens_its_modules(
    checkpoint: Checkpoint, tmp_path: pathlib.Path
) -> None:
    """huggingface/sentence-transformers#2458: a folder that modules.json names was missing."""
    st = pytest.importorskip("sentence_transformers")
    parts = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    small_bert(tmp_path)
    dense = parts.Dense(in_features=8, out_features=4)
    whole = st.SentenceTransformer(
        modules=[
            parts.Transformer(str(tmp_path)),
            parts.Pooling(8, "mean"),
            dense,
            parts.Normalize(),
        ]
    )
    whole.save(str(checkpoint.folder))
    wanted = whole.encode(["shared weights"])
    notes = checkpoint.load()
    assert any("2_Dense/model.safetensors" in note for note in notes)
    with gpuwm.attach(checkpoint.ref) as w, gpuwm.files(w) as folder:
        assert not list(pathlib.Path(folder).rglob("*.safetensors"))
        w.save(folder, overwrite=True)  # of the first module
        (pathlib.Path(folder) / "2_Dense" / "model.safetensors").write_bytes(
            (checkpoint.folder / "2_Dense" / "model.safetensors").read_bytes()
        )
        found = st.SentenceTransformer(folder, local_files_only=True).encode(["shared weights"])
    assert (found == wanted).all()


def shapes(module: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in module.state_dict().items()}


@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("default")  # of these libraries
def test_diffusers_opens_its_components(checkpoint: Checkpoint) -> None:
    diffusers = pytest.importorskip("diffusers")
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=77)
    unet = diffusers.UNet2DModel(
        sample_size=8,
        block_out_channels=(8, 8),
        norm_num_groups=2,
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    )
    pipeline = diffusers.DDIMPipeline(unet, scheduler)
    pipeline.save_pretrained(checkpoint.folder)
    notes = checkpoint.load()
    assert any("unet/diffusion_pytorch_model.safetensors" in note for note in notes)
    with gpuwm.files(checkpoint.ref) as folder:
        found = diffusers.DDIMScheduler.from_pretrained(folder, subfolder="scheduler")
        assert found.config.num_train_timesteps == 77
        config = diffusers.UNet2DModel.load_config(folder, subfolder="unet")
        made = diffusers.UNet2DModel.from_config(config)
        assert shapes(made) == shapes(unet)
        assert diffusers.DDIMPipeline.load_config(folder)["_class_name"] == "DDIMPipeline"
