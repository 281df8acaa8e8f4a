"""Where RL spent its KL, as evidence: a shortcut shows without re-running
anything.

1. Runs of the first checkpoint after training (the score layer has played them)
   are scored under both policies, in the one pass that this room's instruments
   share (`probes.scores.case_scores`), and the KL is split by what it was
   spent on (`kl_split`). Training noise between seeds is not measured.
2. `kl.split`: the whole, nats a run, with the pictures and the table. Kinds of
   step come from the log, so a shortcut that nobody declared shows there too.
3. `kl.channel_share`: for each declared channel, the share spent on the steps
   that try it. Its control is an even spread: the share of the policy's tokens
   that stand there.

`KL(after || before)` is not symmetric: exchanging the checkpoints asks another
question on other runs. It is stated at the sampling temperature without top-k
and top-p: a truncated policy's KL is infinite as soon as the other one
truncates elsewhere. A share says what was rewarded, not that it is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker, instrument
from forensics.phrases import percent, printable
from forensics.records import Control, Evidence, Undefined
from probes.kl.kl_figures import figures, ranked, table
from probes.kl.kl_split import LEAST, NO_CHANNEL, KlSplit, kl_split
from probes.scores.case_scores import case_scores

SPLIT: Final = "kl.split"
CHANNEL: Final = "kl.channel_share"
LAYER: Final = "behaviour"
METHOD: Final = "log-ratio of after to before on the runs of after, split by what it was spent on"
NAMED_KINDS: Final = 3  # in a sentence


@dataclass(frozen=True, kw_only=True)
class KlConfig:
    """`tasks`: of how many tasks the runs are read (all samples of each).
    `level` of intervals. `least`: nats a run below which there are no shares.
    """

    tasks: int = 300
    level: float = 0.95
    least: float = LEAST


@instrument(name="kl", layer=LAYER, questions=(SPLIT, CHANNEL), config=KlConfig())
def kl(case: Case, config: KlConfig) -> Iterator[Evidence | Undefined]:
    """Answers both questions; raises `MissingInput` for what the case cannot give."""
    if not case.policies:
        raise MissingInput(
            "Logs alone do not say how likely another policy was to do the same.",
            "Give the checkpoints to `forensics investigate`.",
        )
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    answers = AnswerMaker(
        layer=LAYER, method=METHOD, provenance=kl.configured(**vars(config)).provenance(case)
    )
    split = read(case, config)
    yield _whole(split, answers)
    declared = [name for name in split.by_channel if name != NO_CHANNEL]
    if not declared:
        missing = MissingInput(
            "The environment declares no channel.",
            f"Look at `{SPLIT}`: it tells every kind of step apart, declared or not.",
        )
        yield answers.undefined(CHANNEL, missing)
    for name in declared:
        yield answers.answer(CHANNEL, partial(_share, split, name, answers), name)


def read(case: Case, config: KlConfig) -> KlSplit:
    """The split of the first after's runs. Raises `MissingInput` where the
    policies cannot score them.
    """
    plan, scores = case_scores(case, config.tasks)
    return kl_split(scores, plan, case.channels, config.level, config.least)


def _whole(split: KlSplit, answers: AnswerMaker) -> Evidence:
    shares = [
        f"{percent(part.share.estimate)} on `{printable(kind)}`"
        for kind, part in ranked(split.by_kind)
        if part.share is not None and part.share.estimate > 0
    ]
    most = f"most of it went to: {', '.join(shares[:NAMED_KINDS])}"
    if split.undefined is not None:
        most = f"no shares: {split.undefined}"
    return answers.evidence(
        SPLIT,
        split.total,
        n=split.runs,
        unit="nats a run",
        artifacts=(*figures(split), table(split)),
        diagnostics={
            "plain_estimate": split.plain,
            "disagreement_in_standard_errors": split.disagreement,
            "share_of_choosing": split.choice.share and split.choice.share.estimate,
            "estimator": "conditional" if split.conditional else "plain",
            "unread_steps": split.unread,
            "retokenised_runs": split.retokenised,
        },
        summary=f"KL(after || before) is {split.total.estimate:.2f} nats a run; {most}.",
    )


def _share(split: KlSplit, name: str, answers: AnswerMaker) -> Evidence:
    part = split.by_channel[name]
    if part.share is None:
        raise MissingInput(
            f"There is no share: {split.undefined}.",
            "Compare checkpoints that differ, on more tasks.",
        )
    assert part.tokens is not None, "a channel has kinds, and kinds have tokens"
    return answers.evidence(
        CHANNEL,
        part.share,
        about=name,
        n=split.runs,
        unit="share of the KL",
        control=Control(
            name="share of the tokens there (an even spread)",
            estimate=part.tokens.estimate,
            interval=part.tokens.interval,
        ),
        diagnostics={
            "nats": part.nats,
            "choosing": part.choice,
            "writing": part.content,
            "plain_nats": part.plain,
        },
        summary=(
            f"{percent(part.share.estimate)} of the KL that RL spent went to steps that try"
            f" {printable(name)}, which hold {percent(part.tokens.estimate)} of the policy's"
            " tokens."
        ),
    )
