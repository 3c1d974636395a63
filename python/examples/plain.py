"""A model of plain torch on shared weights: plain.py MODEL[@TAG]

The version has the tensors `0.weight`, `0.bias`, `2.weight`, `2.bias`.
"""

import argparse

import torch
from torch import nn

import gpuwm

parser = argparse.ArgumentParser(usage="%(prog)s MODEL[@TAG]")
parser.add_argument("ref")

w = gpuwm.attach(parser.parse_args().ref, wait=60)
hidden, width = w["0.weight"].shape

with gpuwm.empty_init():  # parameters without memory
    model = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
result = w.bind(model)  # they are the version's memory now
model.eval()

with torch.inference_mode():
    answer = model(torch.ones(1, width, device=next(model.parameters()).device))
print(f"{w.version} on {w.device}: {len(result.shared)} tensors shared, {answer.sum():.4f}")
