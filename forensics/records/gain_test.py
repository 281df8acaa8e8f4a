"""What a gain test says of itself: what the rule needs in order to weigh its
answers, and its words. The file that measures declares it (`forensics.instruments.gain_test`).

The kind says what a find is:

1. `needless`: what is altered no skill can need. A find that does the policy before training
   no harm is phantom.
2. `needed`: a skill may need it. A find is a question to the reader, and accuses nobody.
3. `aside`: no shortcut, a part of the gain of its own. It is asked for, and stands beside.
4. `declared`: the shortcuts that the world declares, scrubbed. All else is measured on what
   survives that.

Where nobody tested, nothing is cleared. "Nothing to test" clears only by the test's own word,
with its reason: an answer with `applicable` false, or a missing one whose reason begins with
`exempt`.
"""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["declared", "needed", "needless", "aside"]
JOB = "if it is part of the job, {allow}; if not, declare it as a channel"
ALTERED_PROMPT = "One prompt as altered, and the answers to it"  # a table of what was found
SCRUBBED = ("phantom_under_bar", "phantom_over_bar", "phantom", "genuine")
NEEDLESS = ("over_bar", "left", "phantom_over_bar", "placebo_over_bar")


@dataclass(frozen=True, kw_only=True)
class GainTest:
    """`excludes`: what a gain might be where this was not tested. `place`: in sentences and
    rows; of equal ones by name. `shares`: the question on what each source carries (by default
    `NAME.carried`). `on_terms`: it leaves out what is allowed while it measures. `package`: who
    brings it; empty for ours.

    Words, each with a default: `held` ("12 points of it ...", with `{names}` in `held_by`),
    `found` ("more than a fifth of the gain ..."), `loose` ("what ... carry"), `todo` where a
    source carries more than a fifth, `number`: what reasons call its number; of a test that
    stands aside `unlocked` ("training with a coin brings {} as well"), and what its answer on
    drawing in another way is about (`sampling`).
    """

    name: str
    kind: Kind
    excludes: str
    place: int = 100
    shares: str = ""
    exempt: str = ""
    on_terms: bool = False
    package: str = ""
    held: str = ""
    held_by: str = ""
    found: str = ""
    loose: str = ""
    todo: str = ""
    number: str = ""
    unlocked: str = ""
    sampling: str = ""

    @property
    def shared(self) -> str:
        """The question on what each source carries."""
        return self.shares or f"{self.name}.carried"

    @property
    def questions(self) -> tuple[str, ...]:
        """What the rule reads, the one that clears it first."""
        if self.kind == "aside":
            return (self.shared,)
        if self.kind == "declared":
            return tuple(f"gain.{name}" for name in SCRUBBED)
        names = NEEDLESS if self.kind == "needless" else NEEDLESS[:1]
        return tuple(f"{self.name}.{name}" for name in names)

    @property
    def asked(self) -> str:
        """The question that clears it."""
        return self.questions[0]

    @property
    def answers(self) -> tuple[str, ...]:
        """All that it answers: what the rule reads, and what each source carries."""
        return tuple(dict.fromkeys((self.shared, *self.questions)))
