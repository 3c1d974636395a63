"""A model of transformers on shared weights: generate.py MODEL[@TAG] TOKEN...

The version was loaded from a folder that save_pretrained made, or published with
`files=gpuwm.transformers.files(model, tokenizer)`: neither folder nor network is needed here.
"""

import sys

import torch
from transformers import AutoModelForCausalLM

import gpuwm.transformers

model = gpuwm.transformers.from_pretrained(sys.argv[1], AutoModelForCausalLM, wait=60)
ids = torch.tensor([[int(token) for token in sys.argv[2:]]], device=model.device)
made = model.generate(ids, max_new_tokens=8, do_sample=False)
print(*made[0, ids.shape[1] :].tolist())
