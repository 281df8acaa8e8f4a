"""Does a server draw the policy that it claims to serve, and does it tell that policy's
log-probabilities? Two questions, two tests, each over the draws of the server behind contexts
that the claimed checkpoint made here.

1. *Contexts*: prompts of the user's, or what stands before each action of episodes that the
   checkpoint plays in its world. They do not depend on the server. It draws some actions behind
   each, block by block (`BLOCKS`).
2. *Floor*: the checkpoint is scored twice at every token that is drawn, also in the coarsest
   arithmetic that the server may have. What these two differ by is arithmetic: in
   log-probabilities the floor of the gap, in `chi2` the tolerance `delta`. The latter is that of
   the first block, which is not judged for its draws, since it has to stand before the bets.
3. *Told*: at fault where the mean absolute gap between told and scored log-probabilities is
   above `GAPS` times its floor. It says which numbers come, not which tokens.
4. *Drawn*: every departure of `forensics.policies.departures` holds one unit, divided at each
   token by `1 + delta sigma`. If at each token `chi2(drawn from || claimed) <= delta^2` given
   all before it, each holding is a supermartingale, and so is their mean. By Ville's inequality
   it ever passes 1 / `RATE` with a chance of at most `RATE`: one may stop at any block, and the
   first that passes ends the test. What is told plays no part here.
5. *Silence*: for each departure, how many tokens it needs until the mean passes in 9 of 10
   runs (expected growth and variance if it were drawn from, at these contexts, normal
   approximation). `draws it` needs that each departure of `NEEDED`, and each whole suspect,
   would have been seen; else there are not enough samples.

Limits: a server that knows that it is audited can behave; seeds of the server are taken for
randomness; a departure that no bet looks like grows none of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from math import exp, inf, log, sqrt
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch

from forensics.errors import UserError
from forensics.policies import (
    LEAST,
    ServerConfig,
    ServerPolicy,
    gap_by_depth,
    load_policy,
    require_directory,
)
from forensics.policies.departures import NUMBERS, PLAIN, Bets, Departure, bets_on
from forensics.policies.scored_log import score_log
from forensics.policies.server import rendering
from forensics.progress import Progress, silent
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Step, Trajectory, content_hash
from forensics.records.files import read_json, write_json
from forensics.records.trajectory import action_starts
from forensics.study import Folder, Result, hold

DRAWS: Final = "draws"  # the folder of what was drawn
PIECE: Final = 16  # contexts that are asked for, and kept, together


@dataclass(frozen=True, kw_only=True)
class DrawsConfig:
    """How a server is asked, and what is tolerated.

    `samples`: actions behind each context. `arithmetic`: the coarsest that the server may have.
    `rate`: of false alarms. `device`, `dtype`: of the claimed checkpoint here.
    """

    settings: SamplingSettings = field(default_factory=SamplingSettings)
    samples: int = 8
    seed: int = 0
    arithmetic: str = "bfloat16"
    device: str = "auto"
    dtype: str = "float32"


def sampled_runs(
    served: Any, block: Sequence[Sequence[int]], config: DrawsConfig
) -> list[Trajectory]:
    """A run of one action for each draw: its tokens and what the server told of them."""
    rows = served.sample(block, config.samples, config.settings, config.seed)
    return [
        _run(ids, one, f"{number}-{sample}")
        for number, (ids, row) in enumerate(zip(block, rows, strict=True))
        for sample, one in enumerate(row)
        if one.token_ids
    ]


def _run(ids: Sequence[int], drawn: Any, name: str) -> Trajectory:
    given = Step(
        role="user", text="", token_ids=tuple(ids), sampled=(False,) * len(ids), logprobs=()
    )
    own = len(drawn.token_ids)
    said = Step(
        role="assistant",
        text="",
        token_ids=drawn.token_ids,
        sampled=(True,) * own,
        logprobs=drawn.logprobs,
    )
    return Trajectory(
        id=name,
        task=name,
        policy="served",
        environment="contexts",
        seed=0,
        steps=(given, said),
        outcome=None,
        end="truncated",
    )


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Where the draws begin: behind each of `prompts`, or in episodes of a world that the
    claimed checkpoint plays, before each action.
    """

    prompts: Sequence[str] = ()
    environment: Environment | None = None
    tasks: int = 100

    def rendered(self, policy: Any) -> Any:
        """The policy with the rendering that the world asks for."""
        return policy if self.environment is None else policy.rendered_for(self.environment)

    def of(self, claimed: Any, config: DrawsConfig, progress: Progress = silent) -> list[list[int]]:
        """As token ids, each once."""
        world, found = self.environment, dict[tuple[int, ...], None]()
        for prompt in self.prompts:
            found[tuple(claimed.renderer.prompt(prompt, None))] = None
        names = world.tasks("held-out", self.tasks, config.seed) if world is not None else ()
        played = claimed.play(world, names, 1, config.settings, config.seed) if names else ()
        for number, run in enumerate(played, 1):
            ids = [token for step in run.steps for token in step.token_ids or ()]
            found |= {tuple(ids[:start]): None for start in action_starts(run)}
            progress("episodes", number, len(names))
        return [list(ids) for ids in found]


class KeptDraw(NamedTuple):
    """One action that a server drew."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass(frozen=True)
class KeptDraws:
    """A server whose draws are kept in a folder, so that a check that was killed asks for the
    others only. A draw depends on its context and the seed, not on what is asked for beside it.
    """

    served: Any
    folder: Path
    progress: Progress = silent

    def sample(
        self, contexts: Sequence[Sequence[int]], samples: int, settings: SamplingSettings, seed: int
    ) -> list[list[KeptDraw]]:
        """`samples` draws behind each context."""
        rows: list[list[KeptDraw]] = []
        for start in range(0, len(contexts), PIECE):
            self.progress("draws", start, len(contexts))
            piece = contexts[start : start + PIECE]
            asked = [[list(ids) for ids in piece], samples, settings.content(), seed]
            place = self.folder / DRAWS / f"{content_hash(asked)}.json"
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                write_json(place, _drawn(self.served.sample(piece, samples, settings, seed)))
            rows += [[_kept(*draw) for draw in row] for row in read_json(place)]
        self.progress("draws", len(contexts), len(contexts))
        return rows


def _drawn(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [
        [[list(one.token_ids), None if one.logprobs is None else list(one.logprobs)] for one in row]
        for row in rows
    ]


def _kept(ids: Sequence[int], logprobs: Sequence[float] | None) -> KeptDraw:
    return KeptDraw(tuple(ids), None if logprobs is None else tuple(logprobs))


Verdict = Literal[
    "draws it",
    "tells and draws another",
    "tells another",
    "tells it but draws another",
    "not enough samples",
]
MEANING: Final[Mapping[Verdict, str]] = {
    "draws it": "The server tells this policy's log-probabilities and draws from it, as far as"
    " these draws show.",
    "tells and draws another": "The server tells another policy's log-probabilities, and its draws"
    " are another's.",
    "tells another": "The server tells another policy's log-probabilities; whether it draws from"
    " that one, these draws do not show.",
    "tells it but draws another": "The server tells this policy's log-probabilities and draws from"
    " another distribution.",
    "not enough samples": "Nothing speaks against the server, but departures that matter would not"
    " have been seen.",
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One departure. `log_e`: the log of what its bet holds. `kl` (nats) and `distance` (total
    variation): how far it lies from the claimed policy, a token. `needed`: tokens until it is
    seen in 9 of 10 runs, `None`: it is not known, or tolerated as arithmetic.
    """

    departure: Departure
    log_e: float
    kl: float
    distance: float
    needed: int | None

    def within(self, tokens: int) -> bool:
        return self.needed is not None and self.needed <= tokens


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What a check found. `gap`: numbers by depth (`gap_by_depth`), nats; `floor`: of the mean
    absolute gap; `delta`: the tolerance. `log_e`: log of the mean of all holdings; `excess`: nats
    a token by which the draws surprise the claimed policy more than its own would, `deviations`:
    the same in standard deviations. `tokens` that were bet on, of `drawn`.
    """

    verdict: Verdict
    gap: Mapping[str, float]
    floor: float
    delta: float
    log_e: float
    excess: float
    deviations: float
    drawn: int
    tokens: int
    seen: tuple[Seen, ...]
    cut: Departure | None = None

    @property
    def likest(self) -> Seen:
        """The departure that the draws look most like."""
        return max(self.seen, key=lambda one: one.log_e)

    def as_json(self) -> dict[str, Any]:
        rows = [
            {"like": one.departure.words, **asdict(one)} | {"departure": asdict(one.departure)}
            for one in self.seen
        ]
        own = {k: v for k, v in vars(self).items() if k not in ("seen", "cut")}
        cut = None if self.cut is None else self.cut.words
        return own | {"gap": dict(self.gap), "cut": cut, "departures": rows}


def drawn(
    served: Any,
    claimed: Policy,
    rough: Policy,
    suspects: Mapping[str, Policy],
    texts: Sequence[Sequence[int]],
    config: DrawsConfig,
    progress: Progress = silent,
) -> Drawn:
    """The same with policies in memory. `served` only samples; `rough`: the claimed checkpoint
    in the coarsest arithmetic; `texts`: contexts as token ids, in any order.
    """
    if len(texts) < len(BLOCKS):
        raise UserError(
            f"{len(texts)} contexts are too few to bet on; give more --prompts or --tasks"
        )
    order = np.random.default_rng(config.seed).permutation(len(texts))
    book = _Book(claimed, suspects, config)
    edges = [0, *(max(i + 1, round(share * len(texts))) for i, share in enumerate(BLOCKS))]
    for number, (low, high) in enumerate(pairwise(edges)):
        block = [texts[i] for i in order[low:high]]
        runs = sampled_runs(served, block, config)
        progress("contexts", int(high), len(texts))
        book.learn(runs, rough) if number == 0 else book.bet(runs, rough)
        if book.log_e() >= -log(RATE):
            break
    return book.closed()


def report(found: Drawn) -> str:
    """The check in plain text."""
    gap = found.gap.get("sampler_gap", inf)
    lines = [
        f"{found.verdict}. {MEANING[found.verdict]}",
        "",
        f"Told: differs from the checkpoint by {gap:.2g} nats a token"
        f" ({found.drawn} tokens; arithmetic alone: {found.floor:.2g}, at fault above"
        f" {GAPS * found.floor:.2g}).",
    ]
    lines += [
        f"  from {name.removeprefix('sampler_gap_from_')} tokens of context: {value:.2g}"
        for name, value in found.gap.items()
        if name.startswith("sampler_gap_from_")
    ]
    lines += [
        f"Drawn: the bets hold {_times(found.log_e)} ({found.tokens} tokens; {1 / RATE:g} or more"
        f" happens to a server that draws it in at most {RATE:.0%} of checks, at a chi-squared of"
        f" up to {found.delta**2:.2g} a token by arithmetic).",
        f"  Its tokens surprise the checkpoint {found.excess:+.2g} nats a token more than its own"
        f" would ({found.deviations:+.1f} standard deviations).",
        f"  They look most like: {found.likest.departure.words} ({_times(found.likest.log_e)}).",
    ]
    if found.cut is not None:
        lines.append(f"  Cut-off sampling: no token lies outside of {found.cut.words}.")
    return "\n".join([*lines, "", *_silences(found)])


def _silences(found: Drawn) -> Iterator[str]:
    yield "What would have been seen in 9 of 10 checks (nats and total variation a token):"
    for one in found.seen:
        if one.departure.kind == "taught":
            continue
        needs = "tolerated as arithmetic" if one.needed is None else f"needs {one.needed} tokens"
        said = "seen" if one.within(found.tokens) else "NOT seen"
        yield (f"  {said}: {one.departure.words} ({one.kl:.2g} nats, {one.distance:.2g}; {needs})")


def _times(log_e: float) -> str:
    return (
        f"{exp(log_e):.3g} times their stake" if log_e < 50 else f"e^{log_e:.0f} times their stake"
    )


NAME: Final = "check-server"  # of the files in its folder
BLOCKS: Final = (0.125, 0.25, 0.5, 1.0)  # of the contexts, up to and with each block
RATE: Final = 0.01  # of false alarms, at any stopping time
GAPS: Final = 3.0  # times the floor
LEAST_DELTA: Final = 1e-3
TOLERATED: Final = 2.0  # times the root mean square of the arithmetic's own chi2
QUANTILE: Final = 1.2816  # of the normal distribution, for 9 runs of 10
NEEDED: Final = (
    Departure(kind="temperature", size=0.9),
    Departure(kind="temperature", size=1.1),
    Departure(kind="top-p", size=0.95),
)
OUTSIDE: Final = 5.0  # expected tokens outside of a cut, without one of which it is called cut


def check_server(
    server: str,
    checkpoint: str | Path,
    *,
    contexts: Contexts,
    suspects: Sequence[str | Path] = (),
    config: DrawsConfig | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress = silent,
) -> Drawn:
    """Check the server at an address (`URL` or `URL#MODEL`, up to and with `/v1`) against the
    `checkpoint` that it claims to serve. `suspects`: checkpoints that it may draw from instead, in
    whole or in part (the one before training, a drafter). `out`: a folder for what it drew and the
    answer, so that a check that was killed goes on (`resume`). Raises `UserError`.
    """
    config = config or DrawsConfig()
    for directory in (checkpoint, *suspects):
        require_directory(Path(directory).expanduser())
    how: dict[str, Any] = {"resume": resume, "force": force, "progress": progress}
    with nullcontext() if out is None else hold(Folder(Path(out), NAME, [DRAWS], **how)) as folder:
        return _checked(server, checkpoint, contexts, suspects, config, folder, progress)


def _checked(
    server: str,
    checkpoint: str | Path,
    contexts: Contexts,
    suspects: Sequence[str | Path],
    config: DrawsConfig,
    folder: Folder | None,
    progress: Progress,
) -> Drawn:
    url, _, model = server.partition("#")
    served = ServerPolicy(
        ServerConfig(url=url, model=model or None), scores=False, **rendering(checkpoint)
    )
    served.renderer = contexts.rendered(served).renderer
    claimed, rough, *others = (
        load_policy(where, device=config.device, dtype=dtype)
        for where, dtype in (
            (checkpoint, config.dtype),
            (checkpoint, config.arithmetic),
            *((one, config.dtype) for one in suspects),
        )
    )
    texts = contexts.of(claimed, config, progress)
    named = dict(zip((Path(one).name for one in suspects), others, strict=True))
    if folder is None:
        return drawn(served, claimed, rough, named, texts, config, progress)
    folder.state(
        {
            "served": served.served_as,
            "checkpoint": claimed.identity,
            "suspects": {name: one.identity for name, one in named.items()},
            "contexts": content_hash(texts),
            "samples": config.samples,
            "seed": config.seed,
            "settings": config.settings.content(),
            "arithmetic": config.arithmetic,
        }
    )
    kept = KeptDraws(served, folder.path, progress)
    found = drawn(kept, claimed, rough, named, texts, config, progress)
    folder.finish(Result(summary=found.as_json()))
    return found


class _Book:
    """All bets, and what was told. Numbers of departures `[tokens, departures, NUMBERS]`."""

    def __init__(
        self, claimed: Policy, suspects: Mapping[str, Policy], config: DrawsConfig
    ) -> None:
        self.claimed, self.settings = claimed, config.settings
        self.bets: list[tuple[Policy | None, Bets]] = [
            (None, Bets(PLAIN)),
            *((policy, Bets(bets_on(name))) for name, policy in suspects.items()),
        ]
        self.departures = [one for _, bets in self.bets for one in bets.departures]
        self.gaps, self.depths = [np.empty(0)], [np.empty(0)]
        self.numbers = [np.empty((0, len(self.departures), len(NUMBERS)))]
        self.excess = [np.empty((0, 2))]
        self.arithmetic, self.delta = [np.empty(0)], LEAST_DELTA

    @property
    def floor(self) -> float:
        """What arithmetic moves a log-probability by, on average over the tokens told."""
        moved = np.concatenate(self.arithmetic)
        return max(LEAST, float(moved.mean()) if len(moved) else 0.0)

    def learn(self, runs: Sequence[Trajectory], rough: Policy) -> None:
        """From the first block: the tolerance of arithmetic, and what its tokens teach."""
        self.delta = max(self.delta, TOLERATED * sqrt(self._told(runs, rough)["chi2"].mean()))
        self._columns(runs, None, [self.bets[0][1]])
        self.bets[0][1].learn()

    def bet(self, runs: Sequence[Trajectory], rough: Policy) -> None:
        self._told(runs, rough)
        whole = []
        for policy, bets in self.bets:
            found = self._columns(runs, policy, [bets])
            rows = np.stack([found[name] for name in bets.names[:-2]], 1)
            whole.append(rows.reshape(len(rows), -1, len(NUMBERS)))
            bets.learn()
            if policy is None:
                self.excess.append(np.stack([found[name] for name in bets.names[-2:]], 1))
        self.numbers.append(np.concatenate(whole, 1))

    def holdings(self) -> np.ndarray:
        """The log of what each departure's bet holds `[departures]`."""
        numbers = np.concatenate(self.numbers)
        return np.asarray((numbers[..., 0] - np.log1p(self.delta * numbers[..., 3])).sum(0))

    def log_e(self) -> float:
        return float(np.logaddexp.reduce(self.holdings()) - log(len(self.departures)))

    def closed(self) -> Drawn:
        gap = np.concatenate(self.gaps)
        told = gap_by_depth(torch.tensor(gap), torch.tensor(np.concatenate(self.depths)))
        excess, variance = np.concatenate(self.excess).sum(0)
        tokens, seen = sum(map(len, self.numbers)), tuple(self._seen())
        log_e = self.log_e()
        other = log_e >= -log(RATE)
        return Drawn(
            verdict=judged(told.get("sampler_gap", inf) > GAPS * self.floor, other, seen, tokens),
            gap=told,
            floor=self.floor,
            delta=self.delta,
            log_e=log_e,
            excess=excess / max(tokens, 1),
            deviations=excess / sqrt(variance) if variance > 0 else 0.0,
            drawn=len(gap),
            tokens=tokens,
            seen=seen,
            cut=self._cut() if other else None,
        )

    def _seen(self) -> Iterator[Seen]:
        numbers = np.concatenate(self.numbers)
        net = numbers[..., 1] - np.log1p(self.delta * numbers[..., 3])
        wanted = -log(RATE) + log(len(self.departures))
        means = numbers.mean(0) if len(numbers) else np.zeros(numbers.shape[1:])
        for i, (one, log_e) in enumerate(zip(self.departures, self.holdings(), strict=True)):
            growth = float(net[:, i].mean()) if len(net) else 0.0
            needs = _needed(growth, float(means[i, 2]), wanted) if one.kind != "taught" else None
            yield Seen(
                departure=one,
                log_e=float(log_e),
                kl=float(means[i, 1]),
                distance=float(means[i, 4]),
                needed=needs,
            )

    def _cut(self) -> Departure | None:
        """The narrowest cut of which no token lies outside, where some are expected to."""
        numbers = np.concatenate(self.numbers)
        for i, one in sorted(enumerate(self.departures), key=lambda pair: pair[1].size):
            if one.kind in ("top-p", "top-k"):
                expected = numbers[:, i, 4].sum()  # a cut moves as much mass as lies outside
                if expected >= OUTSIDE and (numbers[:, i, 0] >= 0).all():
                    return one
        return None

    def _told(self, runs: Sequence[Trajectory], rough: Policy) -> dict[str, np.ndarray]:
        """Keep what was told against what the checkpoint gives, and what arithmetic moves that
        by; returns the scores.
        """
        found = self._columns(runs, rough, [_Chi()])
        told = [one.steps[1].logprobs or () for one in runs]
        depth = [
            np.arange(len(row)) + len(one.steps[0].token_ids or ())
            for one, row in zip(runs, told, strict=True)
        ]
        said = np.concatenate([np.array(row, float) for row in told])
        self.gaps.append(found["policy"] - said)
        self.arithmetic.append(np.abs(found["policy"] - found["reference"]))
        self.depths.append(np.concatenate(depth))
        return found

    def _columns(
        self, runs: Sequence[Trajectory], reference: Policy | None, readouts: Sequence[Any]
    ) -> dict[str, np.ndarray]:
        rows = list(
            score_log(self.claimed, reference, runs, settings=self.settings, readouts=readouts)
        )
        names = rows[0].columns if rows else ()
        return {name: np.concatenate([one.columns[name] for one in rows]) for name in names}


class _Chi:
    """chi2 of the reference from the policy `[n, 1]`: what another arithmetic does."""

    names = ("chi2",)

    def __call__(self, policy: Any, reference: Any, at: Any) -> Any:
        ratio = torch.expm1((reference - policy).clamp(-1, 1))
        return (policy.exp() * ratio.square()).sum(1, keepdim=True)


def judged(told_another: bool, drew_another: bool, seen: Sequence[Seen], tokens: int) -> Verdict:
    """The two answers in one word. Departures on another checkpoint are needed where whole."""
    if drew_another:
        return "tells and draws another" if told_another else "tells it but draws another"
    if told_another:
        return "tells another"
    needed = [one for one in seen if one.departure in NEEDED or _whole(one.departure)]
    enough = all(one.within(tokens) for one in needed)
    return "draws it" if enough else "not enough samples"


def _whole(departure: Departure) -> bool:
    return departure.kind == "other" and departure.size > 0.9


def _needed(growth: float, variance: float, wanted: float) -> int | None:
    """Tokens until a sum of so much a token passes `wanted` in 9 of 10 runs."""
    if growth <= 0:
        return None
    spread = QUANTILE * sqrt(variance)
    root = (spread + sqrt(spread**2 + 4 * growth * wanted)) / (2 * growth)
    return int(min(root**2, 1e15)) + 1
