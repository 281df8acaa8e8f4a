"""Stretches of Python that begin and end anywhere parse once what is missing is put back."""

import ast

import pytest
from hypothesis import given, settings, strategies as st

from forensics.shortcuts.code_fragments import mended

WHOLE = '''
import os


class Cache:
    """Keeps what was read.

    It is emptied by `clear`.
    """

    def __init__(self, size=3, names=(
        "a", "b",
    )):
        self.items = {
            "first": [1, 2],
            "second": (3, 4),
        }
        self.size = size

    def get(self, key):
        try:
            value = self.items[key]
        except KeyError:
            value = None
        finally:
            self.size += 1
        if value is None:
            return 0
        elif value == 1:
            for one in range(3):
                print(one)
        else:
            with open(key) as file:
                return file.read()
        return value
'''
LINES = WHOLE.strip("\n").split("\n")


@pytest.mark.parametrize("text", [
    "    return True\nelse:\n    x = 1\n", "elif a:\n    pass\nelse:\n    pass\n",
    "except KeyError:\n    pass\n", "    'port': 1,\n}), (\n    ['a'],\n)\n)\n",
    "for one in many:\n", "    (1, 2),\n):\n    with a:\n", "case 2:\n    pass\n",
    "``-1`` means all processors.\n\nwarm : bool, optional (default=False)\n    When set.\n",
])  # fmt: skip
def test_a_stretch_is_made_whole(text: str) -> None:
    whole = mended(text)
    assert whole is not None
    ast.parse(whole)


def test_code_that_is_broken_stays_broken() -> None:
    assert mended("return return\nx = = 1\nif (\n") is None


def test_most_stretches_of_a_file_parse_and_keep_their_code() -> None:
    parsed = tried = 0
    for start in range(len(LINES)):
        for end in range(start + 1, len(LINES) + 1):
            tried += 1
            whole = mended("\n".join(LINES[start:end]) + "\n")
            parsed += whole is not None
    assert parsed > 0.85 * tried


def test_an_exit_in_a_stretch_is_not_made_a_comment() -> None:
    whole = mended("    import os\n    os._exit(0)\nelse:\n    pass\n")
    assert whole is not None and "_exit" in ast.unparse(ast.parse(whole))


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="()[]{}:'\"\n aelsif#=", max_size=60))
def test_nothing_raises(text: str) -> None:
    whole = mended(text)
    if whole is not None:
        ast.parse(whole)
