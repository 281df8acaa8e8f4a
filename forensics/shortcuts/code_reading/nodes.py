"""What single nodes of a syntax tree say: texts that are put together, what reads the input, the
guard of a script.
"""

import ast


def folded(node: ast.AST | None, depth: int = 0) -> str | None:
    """The text of a string that is put together from constants."""
    if depth > 20 or node is None:
        return None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = folded(node.left, depth + 1), folded(node.right, depth + 1)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        values = [folded(one, depth + 1) for one in node.values]
        return None if None in values else "".join(one or "" for one in values)
    if isinstance(node, ast.FormattedValue):
        return folded(node.value, depth + 1)
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "join" and node.args:
        between = folded(getattr(node.func, "value", None), depth + 1)
        parts = getattr(node.args[0], "elts", [])[:100]
        texts = [folded(one, depth + 1) for one in parts]
        known = between is not None and texts and None not in texts
        return (between or "").join(one or "" for one in texts) if known else None
    return text_of(node)


def text_of(node: ast.AST | None) -> str | None:
    """The text of a string constant."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def name_of(node: object) -> str:
    """The name that a node is; empty for any other node."""
    found: str = getattr(node, "id", "")
    return found


def last_name(node: object) -> str:
    """The name that a node is, or the last one of its dotted name."""
    found: str = getattr(node, "id", getattr(node, "attr", ""))
    return found


def called_name(call: ast.Call) -> str:
    """The last name of what is called: `exit` of `sys.exit(0)`."""
    return last_name(call.func)


def is_main_guard(test: ast.expr) -> bool:
    """`__name__ == "__main__"`, either way round."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides) and any(
        text_of(side) == "__main__" for side in sides
    )


def reads_input(node: ast.AST) -> bool:
    """Whether a node reads the standard input."""
    if type(node) is ast.Call and type(node.func) is ast.Name:
        first = node.args[0] if node.args else None
        zero = isinstance(first, ast.Constant) and first.value in (0, "/dev/stdin")
        return node.func.id == "input" or (node.func.id == "open" and zero)
    if isinstance(node, ast.Attribute) and node.attr in ("stdin", "__stdin__"):
        return True
    return isinstance(node, ast.Name) and node.id == "stdin"
