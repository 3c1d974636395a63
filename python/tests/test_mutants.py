"""The operators of tests/mutants change what they name, and nothing beside it."""

import importlib.util
import pathlib
import sys

import pytest

PATH = pathlib.Path(__file__).parents[2] / "tests/mutants/operators.py"
SPEC = importlib.util.spec_from_file_location("mutant_operators", PATH)
assert SPEC
assert SPEC.loader
operators = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = operators
SPEC.loader.exec_module(operators)

C: dict[str, set[tuple[str, str]]] = {
    "if (a < b) /* a < b */": {
        ("condition", "if (!(a < b)) /* a < b */"),
        ("relational", "if (a <= b) /* a < b */"),
    },
    "struct x *p = q;": set(),
    "n = a * b;": {("assignment", ";"), ("arithmetic", "n = a + b;")},
    "p->n |= x & y;": {
        ("bitwise", "p->n |= x | y;"),
        ("step", "p->n &= x & y;"),
    },
    'f(&x, "0 < 1");': {("call", ";")},
    "return !x && y;": {
        ("return", "return 0;"),
        ("not", "return x && y;"),
        ("logical", "return !x || y;"),
    },
    "return true;": {("constant", "return false;")},
    "for (; i < n; i++) g(i);": {
        ("relational", "for (; i <= n; i++) g(i);"),
        ("step", "for (; i < n; i--) g(i);"),
        ("call", "for (; i < n; i++) ;"),
    },
    "#define A 1 + 2": set(),
    "int at[4] = {0};": {("constant", "int at[5] = {0};")},
}
PYTHON: dict[str, set[tuple[str, str]]] = {
    "if a < 1:": {
        ("condition", "if (not (a < 1)):"),
        ("constant", "if a < 2:"),
        ("relational", "if (a <= 1):"),
    },
    "return f'{a + 1}'": {("return", "return None")},
    "a.b = not c": {("assignment", "pass"), ("not", "a.b = (c)")},
    "f(a or b)": {("call", "pass"), ("logical", "f((a and b))")},
    "a = b * c": {("arithmetic", "a = (b + c)")},
}


def found(path: str, text: str, line: int) -> set[tuple[str, str]]:
    mutants = operators.mutants(path, text)
    for mutant in mutants:
        assert " ".join(mutant.apply(text).split("\n")[line - 1].split()) == mutant.after
    return {(mutant.operator, mutant.after) for mutant in mutants if mutant.line == line}


@pytest.mark.parametrize("line", C)
def test_c(line: str) -> None:
    assert found("a.c", f"void f(void)\n{{\n{line}\n}}\n", 3) == C[line]


@pytest.mark.parametrize("line", PYTHON)
def test_python(line: str) -> None:
    body = "\n        pass" if line.endswith(":") else ""
    assert found("a.py", f"def f():\n    {line}{body}\n", 2) == PYTHON[line]


def test_a_mutant_is_the_same_where_lines_above_it_come() -> None:
    text = "int f(void)\n{\n\treturn a < b;\n}\n"
    keys = {mutant.key for mutant in operators.mutants("a.c", text)}
    assert keys == {mutant.key for mutant in operators.mutants("a.c", f"int x;\n\n{text}")}
