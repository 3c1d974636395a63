"""Makes a small model in a cache of the Hugging Face hub, as `hf download` leaves one there: CACHE ORG/NAME."""

import pathlib
import sys

import tokenizers
import torch
import transformers

cache, name = sys.argv[1:]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
repository = pathlib.Path(cache) / f"models--{name.replace('/', '--')}"
snapshot = repository / "snapshots" / COMMIT
snapshot.mkdir(parents=True)
(repository / "refs").mkdir()
(repository / "refs" / "main").write_text(COMMIT)

torch.manual_seed(0)
config = transformers.Qwen3Config(
    vocab_size=512,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    tie_word_embeddings=True,
)
transformers.Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(snapshot)
raw = tokenizers.ByteLevelBPETokenizer()
raw.train_from_iterator(["The capital of France is Paris. "] * 9, vocab_size=300)
transformers.PreTrainedTokenizerFast(tokenizer_object=raw._tokenizer).save_pretrained(snapshot)

# The files are links to blobs.
(repository / "blobs").mkdir()
for number, file in enumerate(sorted(snapshot.iterdir())):
    blob = repository / "blobs" / f"{number:040x}"
    file.rename(blob)
    file.symlink_to(f"../../blobs/{blob.name}")
