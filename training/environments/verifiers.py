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

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, field_validator

from training.sections import Section, sentence

PATTERN_LIMIT: Final = 500  # characters
ANSWER_LIMIT: Final = 10_000  # characters, the last ones
SECONDS: Final = 2.0
NUMBER: Final = re.compile(
    r"(?:(?<![\w.)])[-+])?"  # a sign, unless it subtracts
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3})?"
)


def as_decimal(value: Any) -> Decimal:
    """A JSON number, exactly as it is written."""
    if type(value) not in (int, float):
        raise ValueError(f"must be a number, not {value!r}")
    return Decimal(str(value))


def not_blank(value: str) -> str:
    """The same text. Raises `ValueError` where it is blank."""
    if not value.strip():
        raise ValueError("must be a text that is not empty")
    return value


Filled = Annotated[str, AfterValidator(not_blank)]
Exactly = Annotated[Decimal, BeforeValidator(as_decimal)]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """`right` is `None` where it could not be told, and then `reason` says why.
    `submission`: what was judged.
    """

    right: bool | None
    submission: str
    reason: str | None = None


class Exact(Section):
    value: Filled
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(answer, self.ignore_case) == _plain(self.value, self.ignore_case)
        return Judgement(right=right, submission=answer)


class Contains(Section):
    value: Filled
    ignore_case: bool = False

    def judge(self, answer: str) -> Judgement:
        right = _plain(self.value, self.ignore_case) in _plain(answer, self.ignore_case)
        return Judgement(right=right, submission=answer)


class Regex(Section):
    pattern: Filled
    ignore_case: bool = False

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        import regex  # type: ignore[import-untyped]

        if len(pattern) > PATTERN_LIMIT:
            raise ValueError(f"is longer than {PATTERN_LIMIT} characters")
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"is not a regular expression ({error})") from None
        return pattern

    def judge(self, answer: str) -> Judgement:
        import regex

        flags = regex.IGNORECASE if self.ignore_case else 0
        try:
            match = regex.search(self.pattern, answer, flags, timeout=SECONDS)
        except TimeoutError:
            reason = f"the verifier's pattern took longer than {SECONDS:g} seconds"
            return Judgement(right=None, submission=answer, reason=reason)
        return Judgement(right=match is not None, submission=answer)


class Number(Section):
    value: Exactly
    tolerance: Exactly = Field(Decimal(0), ge=0)

    def judge(self, answer: str) -> Judgement:
        """The last number; thousands may be set apart by commas."""
        found = NUMBER.findall(answer.replace("\u2212", "-"))
        if not found:
            return Judgement(right=False, submission=answer, reason="the answer holds no number")
        number = Decimal(found[-1].replace(",", ""))
        return Judgement(right=abs(number - self.value) <= self.tolerance, submission=found[-1])


Verifier = Exact | Contains | Regex | Number
VERIFIERS: Final[dict[str, type[Verifier]]] = {
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
        raise ValueError(f"must be an object whose `type` is one of: {', '.join(VERIFIERS)}")
    kind = VERIFIERS[rule["type"]]
    try:
        return kind.model_validate({key: rule[key] for key in rule if key != "type"})
    except ValidationError as error:
        raise ValueError(f"of type {rule['type']}: {sentence(error, kind)}") from None


def final_answer(action: str) -> str:
    """What a model answered: without its thinking, stripped, at most the last
    `ANSWER_LIMIT` characters.
    """
    spoken = action.rpartition("</think>")[2].partition("<think>")[0]
    return spoken.strip()[-ANSWER_LIMIT:]


def _plain(text: str, ignore_case: bool) -> str:
    text = " ".join(text.split())
    return text.casefold() if ignore_case else text
