"""Names of a package that are loaded when they are first used (PEP 562), so that
importing the package costs nothing.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: the names that its file imports
    under their own name (`import a as a`) for type checkers alone; some are modules of it.
    """
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    homes = {
        alias.asname: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if alias.asname
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        home = homes[name]
        if home == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(home), name)

    return load, lambda: sorted(homes)
