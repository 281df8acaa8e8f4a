"""Conversations as Markdown: samples by hand after the formats, and those of the field."""

from pathlib import Path

import pytest

from forensics.readers import markdown_chat


@pytest.mark.parametrize(
    "text",
    ["# A page\n\n#### Steps\n\n> quoted\n", "_**User**_ is a word\n", "_**User**_\n", '{"a": 1}'],
)
def test_other_pages_are_no_conversations(tmp_path: Path, text: str) -> None:
    assert not markdown_chat.recognises(tmp_path, text.encode())
