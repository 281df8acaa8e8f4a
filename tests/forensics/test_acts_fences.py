"""Fenced blocks are found line by line, as the plain expressions would find them character by character."""

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from forensics.acts import heads, messages

LINES = st.lists(st.sampled_from([
    "```", "```bash", "``` ", "```a b", "x", "", "  ```", "``", "x```", "a\r", "\r", "````",
]))
TEXTS = st.tuples(LINES.map("\n".join), st.sampled_from(["", "\n", "\r\n", "```"])).map("".join)


@settings(max_examples=500)
@given(TEXTS)
@example("```bash\n```\nls\n```")
@example("```bash\r\nls\r\r\n```")
def test_blocks_are_those_of_the_plain_expressions(text: str) -> None:
    plain = re.findall(r"^```([\w+-]*)[ \t]*\r?\n(.*?)\r?\n```", text, re.S | re.M)
    asked = messages.Habit(shell=True, frame=False, one=False)
    found = [call.text for call in messages._blocks(text, asked, None)]
    assert found == [body for tag, body in plain if tag in ("", "bash")]
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.S | re.M)
    assert [text[at:end] for at, end in heads.acting_spans(text)] == fenced or not fenced
    assert heads.acting_text(text) == ("\n".join(fenced) if fenced else text)
