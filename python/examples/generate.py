"""A model of transformers on shared weights: generate.py MODEL[@TAG] TOKEN...

The version was loaded from a folder that save_pretrained made, or published with
`files=gpuwm.transformers.files(model, tokenizer)`: neither folder nor network is needed here.
"""

import argparse

import torch
from transformers import AutoModelForCausalLM

import gpuwm.transformers

parser = argparse.ArgumentParser(usage="%(prog)s MODEL[@TAG] TOKEN...")
parser.add_argument("ref")
parser.add_argument("tokens", type=int, nargs="+")
arguments = parser.parse_args()

model = gpuwm.transformers.from_pretrained(arguments.ref, AutoModelForCausalLM, wait=60)
ids = torch.tensor([arguments.tokens], device=model.device)
made = model.generate(ids, max_new_tokens=8, do_sample=False)
print(*made[0, ids.shape[1] :].tolist())
