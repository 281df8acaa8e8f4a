"""Reads code as code: what an answer or a patch does to the checks that score it.

1. `code_blocks` takes the code out of a chat answer.
2. `read_code` looks at one text with the prompt in view and tells hard-coded
   tests, call counters, branches on the test, exits, objects that are equal to
   everything, and checks, timers, reports or rewards that are replaced.
3. Each thing told is sure (what was handed in does it) or an attempt that a
   reader should look at.
4. `readable` says whether the code could be looked at at all; nothing told about
   code that could not is no finding.

Nothing that is read is ever run.
"""

from .blocks import ENDINGS, CodeBlock, code_blocks
from .code_finding import EARLY_EXIT, HARD_CODING, MONKEYPATCHING, CodeFinding
from .parsed import Parsed, parsed_up_to
from .reader import asked_names, breaks_off, read_code, readable
from .shown_calls import signatures_of

__all__ = [
    "EARLY_EXIT",
    "ENDINGS",
    "HARD_CODING",
    "MONKEYPATCHING",
    "CodeBlock",
    "CodeFinding",
    "Parsed",
    "asked_names",
    "breaks_off",
    "code_blocks",
    "parsed_up_to",
    "read_code",
    "readable",
    "signatures_of",
]
