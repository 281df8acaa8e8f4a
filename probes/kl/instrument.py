"""Where RL spent its KL, as evidence: a shortcut shows without re-running anything.

1. Runs of the first checkpoint after training (the score layer has played them) are scored under both policies, in the
   one pass that this room's instruments share (`probes.case_pass`), and the KL is booked by what it was spent on
   (`book`, `split`). Training noise between seeds is not measured.
2. `kl.split`: the whole, nats a run, with the pictures and the table. Kinds of step come from the log, so a shortcut
   that nobody declared shows there too.
3. `kl.channel_share`: for each declared channel, the share spent on the steps that try it. Its control is an even
   spread: the share of the policy's tokens that stand there.

`KL(after || before)` is not symmetric: exchanging the checkpoints asks another question on other runs. It is stated at
the sampling temperature without top-k and top-p: a truncated policy's KL is infinite as soon as the other one truncates
elsewhere. A share says what was rewarded, not that it is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.records import Control, Evidence, Interval, Provenance, Undefined
from forensics.wording import percent, printable
from probes.case_pass import case_pass
from probes.kl.book import Book
from probes.kl.picture import figures, ranked, table
from probes.kl.split import LEAST, NO_CHANNEL, KlSplit, Part, split_of

SPLIT: Final = "kl.split"
CHANNEL: Final = "kl.channel_share"
METHOD: Final = "log-ratio of after to before on the runs of after, split by what it was spent on"
NAMED_KINDS: Final = 3  # in a sentence


@dataclass(frozen=True, kw_only=True)
class KlConfig:
    """`tasks`: of how many tasks the runs are read (all samples of each). `level` of intervals. `least`: nats a run
    below which there are no shares."""

    tasks: int = 300
    level: float = 0.95
    least: float = LEAST


@instrument(name="kl", layer="behaviour", questions=(SPLIT, CHANNEL), config=KlConfig())
def kl(case: Case, config: KlConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot give."""
    if not case.policies:
        raise MissingInput("Logs alone do not say how likely another policy was to do the same.",
                           "Give the checkpoints to `forensics investigate`.")
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    teller = Teller(provenance=kl.configured(**vars(config)).provenance(case), split=read(case, config))
    yield teller.whole()
    yield from teller.channels()


def read(case: Case, config: KlConfig) -> KlSplit:
    """The split of the first after's runs. Raises `MissingInput` where the policies cannot score them."""
    found = case_pass(case, config.tasks)
    book = Book(plan=found.plan)
    for scored in found:
        book.add(scored)
    return split_of(book, case.channels, config.level, config.least)


@dataclass(frozen=True, kw_only=True)
class Teller:
    """Makes evidence of a split."""

    provenance: Provenance
    split: KlSplit

    def whole(self) -> Evidence:
        split = self.split
        return self._evidence(
            SPLIT, estimate=split.total, unit="nats a run",
            interval=Interval(low=split.low, high=split.high, level=split.level),
            artifacts=(*figures(split), table(split)),
            diagnostics={
                "plain_estimate": split.plain, "disagreement_in_standard_errors": split.disagreement,
                "share_of_choosing": split.choice.share, "estimator": "conditional" if split.conditional else "plain",
                "unread_steps": split.unread, "retokenised_runs": split.retokenised,
            },
            summary=f"KL(after || before) is {split.total:.2f} nats a run; {self._most()}.",
        )

    def _most(self) -> str:
        if self.split.undefined is not None:
            return f"no shares: {self.split.undefined}"
        told = [f"{percent(part.share)} on `{printable(kind)}`" for kind, part in ranked(self.split.by_kind)
                if part.share is not None and part.share > 0]
        return f"most of it went to: {', '.join(told[:NAMED_KINDS])}"

    def channels(self) -> Iterator[Evidence | Undefined]:
        """One answer for each declared channel."""
        declared = [name for name in self.split.by_channel if name != NO_CHANNEL]
        if not declared:
            yield self._undefined(None, "The environment declares no channel.",
                                  f"Look at `{SPLIT}`: it tells every kind of step apart, declared or not.")
        for name in declared:
            part = self.split.by_channel[name]
            if part.share is None:
                yield self._undefined(name, f"There is no share: {self.split.undefined}.",
                                      "Compare checkpoints that differ, on more tasks.")
            else:
                yield self._share(name, part)

    def _share(self, name: str, part: Part) -> Evidence:
        assert part.share is not None and part.low is not None and part.high is not None and part.tokens is not None
        assert part.tokens_low is not None and part.tokens_high is not None
        level = self.split.level
        return self._evidence(
            CHANNEL, about=name, estimate=part.share, unit="share of the KL",
            interval=Interval(low=part.low, high=part.high, level=level),
            control=Control(name="share of the tokens there (an even spread)", estimate=part.tokens,
                            interval=Interval(low=part.tokens_low, high=part.tokens_high, level=level)),
            diagnostics={"nats": part.nats, "choosing": part.choice, "writing": part.content, "plain_nats": part.plain},
            summary=f"{percent(part.share)} of the KL that RL spent went to steps that try {printable(name)}, which "
            f"hold {percent(part.tokens)} of the policy's tokens.",
        )

    def _evidence(self, question: str, **fields: Any) -> Evidence:
        return Evidence(question=question, layer="behaviour", method=METHOD, provenance=self.provenance,
                        n=self.split.runs, clusters=self.split.tasks, **fields)

    def _undefined(self, about: str | None, reason: str, cure: str) -> Undefined:
        return Undefined(question=CHANNEL, about=about, layer="behaviour", method=METHOD, provenance=self.provenance,
                         reason=reason, cure=cure)
