"""Which tokens decide the wins, and do they stand in shortcut steps? An
instrument on a pair of policies.

1. A few runs that one side won in the open world are continued by the *other*
   side from every prefix that could matter: tokens which raise the chance of
   success by what the other policy would make of the run (`rises`), confirmed
   on fresh samples with a false discovery rate. For wins after training these
   are the tokens by which training wins.
2. For each kind of action: the share of these runs with a deciding token in a
   step of that kind. The control is the same for the wins of *before*,
   continued by *after*; identical policies show no difference.
3. The tokens are told as highlights on their runs, and in a table.

Runs are of different tasks, so intervals are exact binomial ones. With several
checkpoints after training the first is looked at.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from forensics.case import Case
from forensics.errors import MissingInput, refused_as_missing
from forensics.instruments import AnswerMaker, Plays, instrument
from forensics.phrases import percent, plural, printable
from forensics.records import (
    Control,
    Evidence,
    Span,
    Spans,
    Table,
    Trajectory,
    Undefined,
    content_hash,
)
from forensics.statistics import binomial
from forensics.world import PlayedElsewhere
from resampling.ablation.refused_runs import action_kinds
from resampling.cliffs.cliff_search import ROLLOUTS, START, CliffConfig
from resampling.cliffs.cliffs import PAIRS, TestedToken, find_cliffs
from resampling.samplers.local_sampler import LocalSampler, traces
from resampling.samplers.rollout_store import StoredSampler
from resampling.trace_rollouts import SUCCESS, Trace

QUESTION: Final = "cliffs.deciding"
METHOD: Final = "wins continued by the other policy, rises confirmed on fresh samples (e-BH)"
FIRST_LOOK: Final = START * ROLLOUTS + 2 * 2 * PAIRS  # two rounds of both arms


@dataclass(frozen=True, kw_only=True)
class DecidingConfig:
    """`runs`: wins of each side, one a task. `rollouts`: continuations a run,
    at most. `delta`: the rise of the chance of success that should be found.
    `fdr`: of the tokens of one side.
    """

    runs: int = 10
    rollouts: int = 250
    delta: float = 0.2
    fdr: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Token:
    """One deciding token of a run: its step, what that step did, and where it
    stands in the step's text.
    """

    run: Trajectory
    rise: TestedToken
    kinds: tuple[str, ...]
    text: str
    span: Span

    @classmethod
    def of(cls, run: Trajectory, trace: Trace, rise: TestedToken, tokenizer: Any) -> "Token":
        step, first = run.steps[rise.step], trace.steps.index(rise.step)
        text, before = (
            str(tokenizer.decode(list(ids)))
            for ids in ([rise.token_id], trace.tokens[first : rise.token])
        )
        shown = text.strip()
        at = step.text.find(shown, max(len(before.lstrip()) - 1, 0)) if shown else -1
        start = None if at < 0 else at  # `None`: it shows nothing there, the whole step is meant
        end = None if start is None else start + len(shown)
        return cls(
            run=run,
            rise=rise,
            kinds=action_kinds(step.text, step.kinds),
            text=text,
            span=Span(step=rise.step, label="deciding token", start=start, end=end),
        )


@dataclass(frozen=True, kw_only=True)
class SideTokens:
    """The wins of one side that were looked at, and their deciding tokens."""

    runs: int
    tokens: tuple[Token, ...]
    rollouts: int
    exhausted: bool  # the budget ended before the search was done: there may be more tokens

    def count(self, kind: str) -> int:
        """Runs with a deciding token in a step of that kind."""
        return len({token.run.id for token in self.tokens if kind in token.kinds})


def plays(case: Case, config: DecidingConfig) -> Plays:
    """Wins of both sides, each continued so many times at most. Likely: the coarse start
    of the search, and of each win one token that is tested.
    """
    continued = case.afters and not isinstance(case.environment, PlayedElsewhere)
    wins = 2 * min(config.runs, len(case.tasks)) if continued else 0
    return Plays(FIRST_LOOK, config.rollouts).times(wins)


@instrument(
    name="cliffs",
    layer="cliffs",
    questions=(QUESTION,),
    config=DecidingConfig(),
    usual=False,  # many continuations, and no label weighs them
    episodes=plays,
    unit="continuation",
)
def deciding_tokens(case: Case, config: DecidingConfig) -> Iterator[Evidence | Undefined]:
    """A share for each kind of action; raises `MissingInput` for what the case cannot give."""
    if not case.runs_models or case.environment is None:
        raise MissingInput(
            "Logs alone cannot be sampled again.",
            "Give the checkpoints and the environment to `forensics investigate`.",
        )
    case.require_afters()
    provenance = deciding_tokens.configured(**vars(config)).provenance(case)
    make = AnswerMaker(layer="cliffs", method=METHOD, provenance=provenance)
    after = _tokens_of_side(case, case.afters[0], "before", config)
    before = _tokens_of_side(case, "before", case.afters[0], config)
    kinds = sorted({kind for token in (*after.tokens, *before.tokens) for kind in token.kinds})
    if not kinds:
        reason = "The budget of rollouts ended before any token could be confirmed."
        if not after.exhausted:
            reason = (
                f"No token of {plural(after.runs, 'win')} was found to raise the chance of success"
                f" by {percent(config.delta)} or more."
            )
        cure = (
            "Look at more runs, with more rollouts or for smaller rises, with `forensics cliffs"
            " --rises`."
        )
        yield make.undefined(QUESTION, MissingInput(reason, cure))
    for kind in kinds:
        yield _evidence(make, case, kind, after, before)


def _tokens_of_side(case: Case, side: str, other: str, config: DecidingConfig) -> SideTokens:
    first: dict[str, str] = {}  # the first win of each task
    for row in case.rollouts(side).rows("id", "task", "outcome"):
        if row["outcome"] is not None and row["outcome"] >= SUCCESS:
            first.setdefault(row["task"], row["id"])
    wanted = {first[task] for task in sorted(first)[: config.runs]}
    if not wanted:
        raise MissingInput(
            f"`{side}` won no run.", "There is nothing whose making could be looked at."
        )
    runs = (run for run in case.rollouts(side) if run.id in wanted)
    wins = sorted(runs, key=lambda run: run.task)
    policy: Any = case.policy(other)
    world, settings = case.environment, case.budget.settings
    assert world is not None
    if "branches" not in policy.capabilities:
        raise MissingInput(
            f"The policy `{other}` cannot go on inside a run.",
            "Give a checkpoint that is run here.",
        )
    seed = int(content_hash([case.seed, "deciding", side], 12), 16)
    most = config.rollouts * len(wins)
    with refused_as_missing(f"The runs of `{side}` cannot be continued"):
        sampler = LocalSampler(policy, world, wins, settings, seed)
        scored = traces(policy, wins, settings)
        report = find_cliffs(
            scored,
            StoredSampler(case.folder / "resampled", sampler),
            CliffConfig(delta=config.delta, fdr=config.fdr, rollouts=most),
            progress=lambda phase, working, spent: case.progress(
                f"deciding tokens {case.said(side)}, {phase}", spent, most + 1
            ),
            rises=True,
        )
    case.progress(f"deciding tokens {case.said(side)}", 1, 1)
    known = {run.id: (run, trace) for run, trace in zip(wins, scored, strict=True)}
    return SideTokens(
        runs=len(wins),
        tokens=tuple(
            Token.of(*known[rise.trace], rise, policy.tokenizer) for rise in report.cliffs
        ),
        rollouts=report.rollouts,
        exhausted=report.exhausted,
    )


def _evidence(
    make: AnswerMaker, case: Case, kind: str, after: SideTokens, before: SideTokens
) -> Evidence:
    control = binomial(before.count(kind), before.runs)
    shortcut = any(kind in channel.attempts for channel in case.channels)
    tokens = [token for token in after.tokens if kind in token.kinds]
    spans: dict[str, tuple[Span, ...]] = {}
    for token in tokens:
        spans[token.run.id] = (*spans.get(token.run.id, ()), token.span)
    ended = after.exhausted or before.exhausted
    more = " The budget ended before the search was done, so there may be more." if ended else ""
    return make.evidence(
        QUESTION,
        binomial(after.count(kind), after.runs),
        about=kind,
        unit="share of wins",
        clusters=after.runs,
        control=Control(
            name="wins of before, continued by after",
            estimate=control.estimate,
            interval=control.interval,
        ),
        diagnostics={
            "deciding_tokens": len(tokens),
            "declared_shortcut": shortcut,
            "rollouts": after.rollouts,
            "rollouts_control": before.rollouts,
            "budget_exhausted": ended,
        },
        artifacts=(
            *([_table(tokens, kind)] if tokens else []),
            *(
                Spans(title="Deciding tokens", trajectory=run, spans=of_run)
                for run, of_run in spans.items()
            ),
        ),
        summary=(
            f"In {after.count(kind)} of {plural(after.runs, 'win')} after training a token of a"
            f" `{printable(kind)}` step {'(a declared shortcut) ' if shortcut else ''}decides, by"
            f" what the policy before training would have made of the run; in"
            f" {before.count(kind)} of {plural(before.runs, 'win')} before training, the other way"
            f" round.{more}"
        ),
    )


def _table(tokens: Sequence[Token], kind: str) -> Table:
    """`trajectory` and `at` are what `forensics resample --at` takes."""
    rows = []
    for token in tokens:
        rise, run = token.rise, token.run
        text = token.text.strip() or repr(token.text)
        gain = rise.drop.scaled(-1).ends if rise.drop else (None,) * 3
        rows.append((run.task, run.id, rise.token, rise.step, text, rise.probability, *gain))
    columns = ("task", "trajectory", "at", "step", "token", "probability before training")
    return Table(
        title=f"Tokens of {printable(kind)} steps that decide",
        columns=(*columns, "rise of success", "low", "high"),
        rows=tuple(rows),
    )
