"""What the code reader tells does not hang on names, layout or wrapping; cut-off, broken
and hostile texts are read quickly, up to where they parse.
"""

import ast
import builtins
import time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from forensics.shortcuts.code_reading import code_blocks, parsed_up_to, read_code, readable
from tests.forensics.test_code_reading import SAMPLES, prompt_of

HACKS = SAMPLES["hack"]
ALL = [*HACKS, *SAMPLES["honest"]]


def told(code: str, prompt: str) -> set[tuple[str, bool]]:
    return {(one.kind, one.sure) for one in read_code(code, prompt)}


class Renamed(ast.NodeTransformer):
    """Every name that the text binds itself, but for functions and imports, is another."""

    def __init__(self, tree: ast.AST) -> None:
        nodes = list(ast.walk(tree))
        bound = {node.id for node in nodes if isinstance(node, ast.Name) and _stored(node)}
        bound |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        imported = {
            (name.asname or name.name).split(".")[0]
            for node in nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in node.names
        }
        kept = {*dir(builtins), *imported, "f", "__eq__", "self", "cls", "total", "solution"}
        kept |= {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
        hooks = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name.startswith("pytest")]
        kept |= {one.arg for hook in hooks for one in hook.args.args}
        self.names = {name: f"renamed_{at}" for at, name in enumerate(sorted(bound - kept))}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self.names.get(node.arg, node.arg)
        return node

    def visit_Global(self, node: ast.Global) -> ast.Global:
        node.names = [self.names.get(name, name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global  # type: ignore[assignment]


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample["name"])
def test_names_layout_and_comments_change_nothing(sample: dict[str, Any]) -> None:
    code, prompt = sample["code"], prompt_of(sample)
    expected = told(code, prompt)
    tree = ast.parse(code)
    assert told(ast.unparse(tree), prompt) == expected
    assert told(ast.unparse(Renamed(tree).visit(tree)), prompt) == expected
    commented = "".join(
        f"{line}  # a remark\n" for line in ast.unparse(ast.parse(code)).split("\n")
    )
    if '"""' not in commented:
        assert told("# a heading\n\n" + commented, prompt) == expected
    assert told(code.replace("\n", "\r\n"), prompt) == expected
    assert told("\n".join("    " + line for line in code.split("\n")), prompt) == expected


@pytest.mark.parametrize("sample", HACKS, ids=lambda sample: sample["name"])
def test_what_stands_above_a_break_is_told(sample: dict[str, Any]) -> None:
    code, prompt = sample["code"], prompt_of(sample)
    for behind in ("def g(x:\n    return (\n", "text = '''never closed\nx = 1\n", "€uro$ ?? !!\n"):
        broken = code + "\n" + behind
        found = told(broken, prompt)
        kinds = {kind for kind, _ in told(code, prompt)}
        assert kinds <= {kind for kind, _ in found} or not kinds - {"equal to everything"}
        assert not parsed_up_to(broken).whole


HOSTILE = {
    "parentheses": "x = " + "(" * 10_000 + ")" * 10_000,
    "open parentheses": "f(" * 50_000,
    "brackets": "[" * 100_000,
    "sum": "x = " + "+".join(["1"] * 60_000),
    "minus": "x = " + "-" * 50_000 + "1",
    "attributes": "x" + ".y" * 50_000,
    "one long line": "x = '" + "a" * 1_000_000 + "'\n",
    "null bytes": "import os\0\nos._exit(0)\0\0\n",
    "lone surrogates": "x = '\ud800'\nimport os\n\udfff\n",
    "nested ifs": "".join(" " * at + "if x == 1:\n" for at in range(95)) + " " * 95 + "pass\n",
    "many errors": "def f(:\n  x = = 1\n" * 8_000,
    "broken strings": "x = '''\n" * 20_001,
    "long chain": "def f(n):\n" + "".join(
        f"    if n == {n}:\n        return {n * 7}\n" for n in range(4_000)
    ),
    "long table": "T = {" + ", ".join(f"{n}: {n * 7}" for n in range(20_000)) + "}\n",
    "elifs": "def f(n):\n    if n == 1: return 2\n" + "    elif n == 3: return 4\n" * 900,
    "fences": "```\n" * 30_000,
    "files": "<file path='a.py'>\n" * 30_000,
    "tabs": "\t" * 100_000 + "x",
    "powers": "x = 9**9**9**9\ny = 'a' * 10**9\nz = [0] * 10**9\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_read_quickly(name: str) -> None:
    text = HOSTILE[name]
    started = time.process_time()
    read_code(text, "assert f(12) == 77\n" * 50)
    readable(text)
    for block in code_blocks(text)[:3]:
        read_code(block.code)
    read_code("def f(n):\n    if n == 12:\n        return 77\n", text)
    assert time.process_time() - started < 20


PIECES = st.sampled_from(
    ["if n == 12:", "return 77", "def f(n):", "\n", "    ", "import os", "os._exit(0)", "class A:",
     "def __eq__(self, o):", "return True", "{", "}", "(", ")", "'", '"""', ":", "Input\n3\n",
     "Output\n4\n", ">>> f(2)\n4\n", "assert f(12) == 77", "```", "[", "]",
     "global c", "c += 1", "\\", "#", "match n:"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=40), st.lists(PIECES, max_size=20))
def test_any_shuffle_of_code_is_read(code: list[str], prompt: list[str]) -> None:
    read_code("".join(code), "".join(prompt))
    read_code("\n".join(code), "\n".join(prompt))
    code_blocks("\n".join(code))
