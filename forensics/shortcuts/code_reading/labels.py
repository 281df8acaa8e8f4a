"""What the arms of a `switch` or `match` in languages other than Python ask for: each label of
an arm, and the labels before it that fall through to its body.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .grammars import CASES

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_LABELS = 200
_SEVERAL = ("switch_label", "expression_list", "match_pattern", "or_pattern")


def labels_of(arm: "Node") -> list["Node"]:
    """The labels of an arm, with those of empty arms right before it."""
    found = list(_own(arm))
    before = arm.prev_named_sibling
    while before is not None and before.type in CASES and len(found) < MOST_LABELS:
        if body_of(before):
            break
        found = [*_own(before), *found]
        before = before.prev_named_sibling
    return found[-MOST_LABELS:]


def body_of(arm: "Node") -> list["Node"]:
    """What an arm does."""
    tops = {top.id for top in _tops(arm)}
    return [one for one in arm.named_children if one.id not in tops and "comment" not in one.type]


def _tops(arm: "Node") -> list["Node"]:
    field = "pattern" if arm.type == "match_arm" else "value"
    top = arm.child_by_field_name(field)
    if top is not None:
        return [top]
    return [one for one in arm.named_children if one.type == "switch_label"]


def _own(arm: "Node") -> Iterator["Node"]:
    waiting = list(reversed(_tops(arm)))
    for _ in range(3 * MOST_LABELS):
        if not waiting:
            return
        node = waiting.pop()
        if node.type in _SEVERAL:
            waiting += reversed(node.named_children)
        else:
            yield node
