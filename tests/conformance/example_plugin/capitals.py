"""A stranger's gain test in one file: does the gain stand where prompts are written in capitals?"""

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.case import Case
from forensics.instruments import GainTest, gain_test
from forensics.records import Evidence, Undefined
from resampling.gain_tests import AlteredWorld, GainAnswers, alteration, study_of

CAPITALS = GainTest(
    name="capitals",
    kind="needless",
    excludes="cues in how letters are written",
    held="go away in capitals",
    todo="write all prompts alike",
)


class InCapitals(AlteredWorld):
    """The inner world, shouting."""

    def shown(self, text: str) -> str:
        return text.upper()


@dataclass(frozen=True, kw_only=True)
class CapitalsConfig:
    """`tasks` that are played at most."""

    tasks: int = 150


def plays(case: Case, config: CapitalsConfig) -> int:
    """Both sides once."""
    tasks = min(config.tasks, len(case.tasks))
    return tasks * (1 + len(case.afters)) * case.budget.samples


@gain_test(CAPITALS, config=CapitalsConfig(), episodes=plays)
def capitals(case: Case, config: CapitalsConfig) -> Iterator[Evidence | Undefined]:
    """What of the gain is lost in capitals."""
    study = study_of(case, config.tasks)
    say = GainAnswers.of(capitals, case, config, "prompts in capitals")
    found = study.compare(study.altered(alteration("capitals", InCapitals)).pair)
    yield from say.whole(found, "Every prompt in capitals.")
