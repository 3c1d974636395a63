"""What an engine is asked, as one line "generate JSON" on its stdin, and the tokens of the prompt.
engine.py and fake.py share this."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass

WORD = "generate "
FIRST, BELOW = 3, 1000  # of the tokens of prompts; every model here has more


@dataclass
class Question:
    """One prompt. `prompt`: parts [number, tokens]: the same part is always the same tokens, in
    every process. `tokens`: of the answer. `times`: how often it is asked; `reset`: with an empty
    prefix cache each time. The engine tells "generated", with the same `name`."""

    name: str
    prompt: list[list[int]]
    tokens: int = 24
    times: int = 1
    reset: bool = True

    @property
    def length(self) -> int:
        return sum(length for _, length in self.prompt)

    def line(self) -> str:
        return WORD + json.dumps(asdict(self))


def question(line: str) -> Question | None:
    """None: the line asks for something else."""
    return Question(**json.loads(line[len(WORD) :])) if line.startswith(WORD) else None


def token_ids(prompt: list[list[int]]) -> list[int]:
    found: list[int] = []
    for number, length in prompt:
        found += random.Random(number).choices(range(FIRST, BELOW), k=length)
    return found
