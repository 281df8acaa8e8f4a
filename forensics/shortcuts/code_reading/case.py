"""One pair of literals in the code: what is asked for, and what is given for it."""

import ast
from dataclasses import dataclass

from .literals import Tokens


@dataclass(frozen=True, kw_only=True)
class Case:
    """Literals of a condition (or key) and the literals that are given for them.

    `group`: cases of the same chain or table. `shape`: branch, table, pairs,
    inline, plain. `returned`: given back or printed, not only kept in a name. `listed`: a
    list is compared, which no base case does.
    """

    guard: tuple[Tokens, ...]
    outcome: tuple[Tokens, ...]
    node: ast.AST
    group: int
    shape: str
    returned: bool = True
    listed: bool = False
    last: int = 0
