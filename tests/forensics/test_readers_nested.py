"""Several answers to one question in one row: each is a run of its own."""

import pytest

from forensics.readers import nested_rollouts


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("<think>\nSo 3 + 4 = 7.", True), ("the swimming", True), ("It costs $250-$500=$", True),
        ("1. Hotel:\n ", True), ("", True), ("It costs $98$ in all.", False), ("**100**", False),
        ("\\[\n\\boxed{7}\n\\]", False), ("print(7)\n```", False), ("一共七个。", False),
    ],
)  # fmt: skip
def test_a_text_that_breaks_off(text: str, cut: bool) -> None:
    assert nested_rollouts.breaks_off(text) is cut
