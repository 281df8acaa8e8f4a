"""Classes of tokens by how they are written: a partition of the vocabulary, known before anything is drawn."""

import string
from typing import Any, Final

import numpy as np

CLASSES: Final = ("number", "sign", "white space", "control", "word")


def token_classes(tokenizer: Any, size: int) -> np.ndarray:
    """The number of each token's class `[size]` (see `CLASSES`)."""
    special = set(tokenizer.all_special_ids)
    known = len(tokenizer)
    return np.array([_class("" if i >= known else tokenizer.decode([i]), i in special) for i in range(size)], np.int64)


def _class(text: str, special: bool) -> int:
    bare = text.strip()
    if special:
        return CLASSES.index("control")
    if not bare:
        return CLASSES.index("white space" if text else "control")
    if any(c.isalpha() for c in bare):
        return CLASSES.index("word")
    return CLASSES.index("number" if any(c in string.digits for c in bare) else "sign")
