"""A model of transformers, loaded by one process for all: transformers_model.py FOLDER

The folder is one that save_pretrained made, or a name on the Hugging Face Hub. The first process
loads the files, all others attach to the memory that it filled. With GPUWM_MODE=load, a process
never loads files: if nobody has loaded them, it gets gpuwm.NotFound.
"""

import argparse
import time

import torch
from transformers import AutoModel, PreTrainedModel

import gpuwm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@gpuwm.builder(key="{folder}", ttl=600)
def pretrained(folder: str) -> PreTrainedModel:
    print("loads the files")
    model: PreTrainedModel = AutoModel.from_pretrained(folder).to(DEVICE)
    return model


parser = argparse.ArgumentParser(usage="%(prog)s FOLDER")
parser.add_argument("folder")
folder = parser.parse_args().folder

started = time.perf_counter()
model = pretrained(folder)
print(f"{type(model).__name__} on {model.device} after {time.perf_counter() - started:.2f} s")
with torch.inference_mode():
    hidden = model(torch.tensor([[1, 2, 3]], device=DEVICE)).last_hidden_state
print(f"the hidden states have the sum {hidden.double().abs().sum():.4f}")
