"""The operators: what a mutant changes in a line of C or of Python. A mutant is one change at one place."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import re
from collections.abc import Iterator

Change = tuple[str, int, int, str]  # the operator's name, where the changed text begins and ends, the text in its place


@dataclasses.dataclass(frozen=True)
class Mutant:
    path: str
    line: int
    operator: str
    start: int
    end: int
    new: str  # stands for the characters from start to end
    before: str  # the line as it is, and as the mutant has it: both on one line
    after: str

    @property
    def key(self) -> str:
        """What says which mutant it is while lines above it come and go."""
        return f"{self.path}: {self.operator}: {self.before} → {self.after}"

    def apply(self, text: str) -> str:
        return text[: self.start] + self.new + text[self.end :]


def mutants(path: str, text: str) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    found = []
    for operator, start, end, new in sorted(set(_of_python(text) if path.endswith(".py") else _of_c(text))):
        first = text.rfind("\n", 0, start) + 1
        last = text.find("\n", end)
        before, after = text[first:last], text[first:start] + new + text[end:last]
        line = text.count("\n", 0, start) + 1
        found.append(Mutant(path, line, operator, start, end, new, _on_one_line(before), _on_one_line(after)))
    return found


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


# ---- C ----

C_OPPOSITES = {
    "relational": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
    "logical": {"&&": "||", "||": "&&"},
    "arithmetic": {"+": "-", "-": "+", "*": "+", "/": "*", "%": "*"},
    "bitwise": {"&": "|", "|": "&", "<<": ">>", ">>": "<<"},
    "step": {"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "++": "--", "--": "++"},
}
NO_CODE = re.compile(
    r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE,
)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|<<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\S")
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "goto", "case"}
BEGINS_A_STATEMENT = {";", "{", "}", "else", ")"}
OPENS, CLOSES = "([{", ")]}"


def _of_c(text: str) -> Iterator[Change]:
    # Comments, texts and the preprocessor's lines become blanks, so that places stay. A text is a word to the tokens around it.
    code = NO_CODE.sub(lambda m: re.sub(r"[^\n]", "_" if m[0][0] in "\"'" else " ", m[0]), text)
    tokens = [(m[0], m.start(), m.end()) for m in TOKEN.finditer(code)]
    partner = _partners([token for token, _, _ in tokens])
    for i, (token, start, end) in enumerate(tokens):
        before = tokens[i - 1][0] if i else ""
        # clang-format writes blanks on both sides of an operator with two operands, and of no pointer's star.
        has_two = code[start - 1 : start].isspace() and code[end : end + 1].isspace() and _ends_a_value(before)
        for operator, opposites in C_OPPOSITES.items():
            if token in opposites and (has_two or operator == "step"):
                yield operator, start, end, opposites[token]
        if token == "!":
            yield "not", start, end, ""
        elif token == "if" and i + 1 in partner:
            first, last = tokens[i + 1][2], tokens[partner[i + 1]][1]
            yield "condition", first, last, f"!({text[first:last]})"
        elif re.fullmatch(r"\d+", token) and before != "{":
            yield "constant", start, end, str(int(token) + 1)
        elif token in ("true", "false"):
            yield "constant", start, end, "false" if token == "true" else "true"
        elif token == "return" and tokens[i + 1][0] not in (";", "0", "true", "false", "NULL"):
            yield "return", tokens[i + 1][1], tokens[_statement_end(tokens, partner, i)][1], "0"
        elif before in BEGINS_A_STATEMENT and re.fullmatch(r"\w+|\*|\+\+|\(", token) and token not in KEYWORDS:
            last = _statement_end(tokens, partner, i)
            words = [t for t, _, _ in tokens[i:last]]
            if tokens[last][0] != ";":
                continue  # the last part of a for's head
            if partner.get(i + 1) == last - 1 and tokens[i + 1][0] == "(" and token != "assert":
                yield "call", start, tokens[last][1], ""
            elif "=" in words and not _declares(words[: words.index("=")]):
                yield "assignment", start, tokens[last][1], ""


def _partners(tokens: list[str]) -> dict[int, int]:
    partner, open_ones = {}, []
    for i, token in enumerate(tokens):
        if token in OPENS:
            open_ones.append(i)
        elif token in CLOSES and open_ones:
            partner[open_ones.pop()] = i
    return partner


def _ends_a_value(token: str) -> bool:
    return bool(re.fullmatch(r"\w+|\)|\]", token)) and token not in KEYWORDS


def _statement_end(tokens: list[tuple[str, int, int]], partner: dict[int, int], i: int) -> int:
    while i < len(tokens) - 1 and tokens[i][0] not in (";", *CLOSES):
        i = partner.get(i, i) + 1
    return min(i, len(tokens) - 1)


def _declares(words: list[str]) -> bool:
    """Whether two words follow each other, or with a star between them: a type and its variable."""
    named = [w for w in words if w != "*"] if words[0] != "*" else words[1:]
    return any(a[0].isidentifier() and b[0].isidentifier() for a, b in itertools.pairwise(named))


# ---- Python ----

PYTHON_OPPOSITES: dict[str, dict[type[ast.AST], type[ast.AST]]] = {
    "relational": {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
                   ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
    "logical": {ast.And: ast.Or, ast.Or: ast.And},
    "arithmetic": {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Mod: ast.Mult},
}  # fmt: skip


def _of_python(text: str) -> Iterator[Change]:
    tree = ast.parse(text)
    lines = [0]
    for line in text.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def place(line: int, byte: int) -> int:
        whole = text[lines[line - 1] : lines[line]]
        return lines[line - 1] + len(whole.encode()[:byte].decode())

    def change(operator: str, node: ast.AST, new: str) -> Change:
        return (
            operator,
            place(node.lineno, node.col_offset),
            place(node.end_lineno, node.end_col_offset),
            new,
        )  # type: ignore[attr-defined]

    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    # Python 3.11 doesn't say where in a text with values these stand.
    texts = {inner for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in {inner for function in functions for statement in function.body for inner in ast.walk(statement)} - texts:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in PYTHON_OPPOSITES["relational"]:
                other = PYTHON_OPPOSITES["relational"][type(op)]()
                yield change("relational", node, f"({ast.unparse(ast.Compare(left, [other], [right]))})")
            case ast.BoolOp(op=op, values=values):
                yield change(
                    "logical",
                    node,
                    f"({ast.unparse(ast.BoolOp(PYTHON_OPPOSITES['logical'][type(op)](), values))})",
                )
            case ast.BinOp(left=left, op=op, right=right) if type(op) in PYTHON_OPPOSITES["arithmetic"]:
                other = PYTHON_OPPOSITES["arithmetic"][type(op)]()
                yield change("arithmetic", node, f"({ast.unparse(ast.BinOp(left, other, right))})")
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield change("not", node, f"({ast.unparse(operand)})")
            case ast.Constant(value=bool() | int() as value):
                yield change("constant", node, str(not value if isinstance(value, bool) else value + 1))
            case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
                yield change("return", value, "None")
            case ast.Expr(value=ast.Call()):
                yield change("call", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield change("assignment", node, "pass")
        if isinstance(node, ast.If | ast.IfExp):
            yield change("condition", node.test, f"(not ({ast.unparse(node.test)}))")
