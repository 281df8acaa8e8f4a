"""Answers broken on purpose: right ones that no careful grader takes any more."""

import re

from forensics.layers.text_words import placed_words

NUMBER = re.compile(r"-?\d+")
OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


def cut_off(text: str) -> str | None:
    """The first half of its words."""
    placed = placed_words(text)
    return text[: placed[len(placed) // 2 - 1][2]] if len(placed) > 1 else None


def negate(text: str) -> str | None:
    """With a `yes`, `no`, `true` or `false` turned round, else its first number."""
    for word, start, end in placed_words(text):
        if word.lower() in OPPOSITES:
            return text[:start] + OPPOSITES[word.lower()] + text[end:]
    turned = NUMBER.sub(lambda number: str(-int(number[0])), text, count=1)
    return turned if turned != text else None


BREAKS = {"the end cut off": cut_off, "negated": negate}
