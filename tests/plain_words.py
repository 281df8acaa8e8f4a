"""What a person reads first says neither hashes nor names of our own."""

import re

HASH_OR_OWN_NAME = re.compile(r"[0-9a-f]{10,}|\bafter-\d|-altered-|shadow |\w_bar\b|-open\b")


def said_plainly(text: str, *places: object) -> str:
    """The text, which must say none; `places`: of this machine, which it may name."""
    for place in places:
        text = text.replace(str(place), "")
    found = HASH_OR_OWN_NAME.search(text)
    assert found is None, (found, text)
    return text
