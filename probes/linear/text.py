"""What the text alone tells: the features that a probe has to beat.

Bags of tokens of the same prefix that the activations were read from, whole and its last tokens alone, as
log(1 + count) in a logistic regression that chooses its strength just as the probe does; and single columns such as the
turn number.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from probes.linear.readings import Readings

RECENT: Final = 32  # tokens
WHOLE_BAG: Final = "bag of tokens"
RECENT_BAG: Final = f"bag of the last {RECENT} tokens"
Floats = np.ndarray


def text_features(source: Readings, target: Readings, most_tokens: int) -> dict[str, tuple[Floats, Floats]]:
    """Features of the rows of both `[rows, features]`, by the baseline's name. `most_tokens`: the commonest ones, by
    rows of the source that have them; no label is looked at."""
    found: dict[str, tuple[Floats, Floats]] = {}
    for name, last in ((WHOLE_BAG, 0), (RECENT_BAG, RECENT)):
        texts, others = ([prefix[-last:] for prefix in one.prefixes] for one in (source, target))
        known = _commonest(texts, most_tokens)
        if known:
            found[name] = _bag(texts, known), _bag(others, known)
    for name in source.columns:
        if name in target.columns:
            found[name] = source.columns[name][:, None], target.columns[name][:, None]
    return found


def _commonest(texts: Sequence[Floats], most: int) -> dict[int, int]:
    seen: Counter[int] = Counter()
    for text in texts:
        seen.update(np.unique(text).tolist())
    ranked = sorted(seen, key=lambda token: (-seen[token], token))[:most]
    return {token: place for place, token in enumerate(ranked)}


def _bag(texts: Sequence[Floats], known: dict[int, int]) -> Floats:
    bag = np.zeros((len(texts), len(known)), np.float32)
    for row, text in enumerate(texts):
        tokens, counts = np.unique(text, return_counts=True)
        for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
            if token in known:
                bag[row, known[token]] = count
    return np.log1p(bag)
