"""Verifiers: whether an answer is right, decided by a rule that a JSON object
states.

    {"type": "exact", "value": "Paris"}           the whole answer
    {"type": "contains", "value": "Paris"}        anywhere in the answer
    {"type": "regex", "pattern": "par(is)?$"}     a match anywhere in the answer
    {"type": "number", "value": 42}               the last number in the answer

`exact`, `contains` and `regex` take `"ignore_case": true`; `number` takes
`"tolerance": 0.5`. Runs of whitespace count as one space. Only what follows the
last `</think>` is the answer, and thinking that was never closed holds none.

A pattern is the user's and the text a model's, so a search may explode:
patterns and texts are cut to a length, and a search that takes longer than two
seconds has no result (`None`), which is not a failure.
"""

import math
import re
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Final, Protocol

PATTERN_LIMIT: Final = 500  # characters
ANSWER_LIMIT: Final = 10_000  # characters, the last ones
SECONDS: Final = 2.0
NUMBER: Final = re.compile(
    r"(?:(?<![\w.)])[-+])?"  # a sign, unless it subtracts
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3})?"
)


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`right` is `None` where it could not be told, and then `reason` says why.
    `submission`: what was judged.
    """

    right: bool | None
    submission: str
    reason: str | None = None


class Verifier(Protocol):
    """A rule for answers."""

    def judge(self, answer: str) -> Judgement: ...


@dataclass(frozen=True, kw_only=True)
class Exact:
    value: str
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(answer, self.ignore_case) == _plain(self.value, self.ignore_case)
        return Judgement(right=right, submission=answer)


@dataclass(frozen=True, kw_only=True)
class Contains:
    value: str
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(self.value, self.ignore_case) in _plain(answer, self.ignore_case)
        return Judgement(right=right, submission=answer)


@dataclass(frozen=True, kw_only=True)
class Regex:
    pattern: str
    ignore_case: bool = False

    def __post_init__(self) -> None:
        import regex  # type: ignore[import-untyped]

        if len(self.pattern) > PATTERN_LIMIT:
            raise ValueError(f"`pattern` is longer than {PATTERN_LIMIT} characters")
        try:
            regex.compile(self.pattern)
        except regex.error as error:
            raise ValueError(f"`pattern` is not a regular expression ({error})") from None

    def judge(self, answer: str) -> Judgement:
        import regex

        flags = regex.IGNORECASE if self.ignore_case else 0
        try:
            match = regex.search(self.pattern, answer, flags, timeout=SECONDS)
        except TimeoutError:
            reason = f"the verifier's pattern took longer than {SECONDS:g} seconds"
            return Judgement(right=None, submission=answer, reason=reason)
        return Judgement(right=match is not None, submission=match.group() if match else answer)


@dataclass(frozen=True, kw_only=True)
class Number:
    value: Decimal
    tolerance: Decimal = Decimal(0)

    def judge(self, answer: str) -> Judgement:
        """The last number; thousands may be set apart by commas."""
        found = NUMBER.findall(answer.replace("\u2212", "-"))
        if not found:
            return Judgement(right=False, submission=answer, reason="the answer holds no number")
        number = Decimal(found[-1].replace(",", ""))
        return Judgement(right=abs(number - self.value) <= self.tolerance, submission=found[-1])


VERIFIERS: Final[dict[str, type[Any]]] = {
    "exact": Exact,
    "contains": Contains,
    "regex": Regex,
    "number": Number,
}


def parse_verifier(rule: Any) -> Verifier:
    """The verifier that a JSON object states. Raises `ValueError` with what is
    wrong, for a line number to be added.
    """
    if not isinstance(rule, dict) or rule.get("type") not in VERIFIERS:
        raise ValueError(
            f"`verifier` must be an object whose `type` is one of: {', '.join(VERIFIERS)}"
        )
    kind = VERIFIERS[rule["type"]]
    given = {key: value for key, value in rule.items() if key != "type"}
    known = [field.name for field in fields(kind)]
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(
            f"a verifier of type {rule['type']} has no '{unknown[0]}'; it has: {', '.join(known)}"
        )
    if known[0] not in given:
        raise ValueError(f"a verifier of type {rule['type']} needs `{known[0]}`")
    verifier: Verifier = kind(**{key: _checked(key, value, kind) for key, value in given.items()})
    return verifier


def _checked(key: str, value: Any, kind: type) -> Any:
    if key == "ignore_case":
        if not isinstance(value, bool):
            raise ValueError("`ignore_case` must be true or false")
        return value
    if kind is Number:
        number = type(value) is int or (type(value) is float and math.isfinite(value))
        if not number or (key == "tolerance" and value < 0):
            raise ValueError(
                f"`{key}` must be a number{' of at least 0' if key == 'tolerance' else ''}"
            )
        return Decimal(str(value))
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"`{key}` must be a text that is not empty")
    return value


def final_answer(action: str) -> str:
    """What a model answered: without its thinking, stripped, at most the last
    `ANSWER_LIMIT` characters.
    """
    spoken = action.rpartition("</think>")[2].partition("<think>")[0]
    return spoken.strip()[-ANSWER_LIMIT:]


def _plain(text: str, ignore_case: bool) -> str:
    text = " ".join(text.split())
    return text.casefold() if ignore_case else text
