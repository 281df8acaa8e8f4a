"""What a probe is asked, and what is read to answer it: activations at the
tokens that a question asks about and at no others, and the text before them.

1. A question names steps of a run and a yes or no for each. It is read at the
   *deciding token*: the last token before the first one that the policy drew in
   that step, so nothing of the step itself can be seen.
2. Texts are cut behind their last deciding token and read some at a time, those
   of like length together, padded on the right: in a causal model nothing
   behind a position reaches it, so the padding changes nothing.
3. A hook at each site keeps the asked positions alone, so memory grows with the
   number of questions, never with the length of runs.
4. What the text alone tells, which a probe has to beat: bags of tokens of the
   same prefix, whole and its last tokens alone, as log(1 + count); and single
   columns such as the turn number.

A log without token ids is tokenised again in the policy's rendering. A step
whose deciding token lies before the text that fits is counted as unread.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np

from forensics.errors import UserError
from forensics.policies import attach, lacks_token_ids, layout_of, require, with_token_ids
from forensics.records import Trajectory

Floats = np.ndarray
WINDOW: Final = 256  # runs that are sorted by length together
TOKENS_AT_ONCE: Final = 16384
RECENT: Final = 32  # tokens
WHOLE_BAG: Final = "bag of tokens"
RECENT_BAG: Final = f"bag of the last {RECENT} tokens"


class Question(Protocol):
    """Steps of a run that are asked about, by number, each with its answer."""

    def __call__(self, trajectory: Trajectory) -> Iterator[tuple[int, bool]]: ...


@dataclass(frozen=True, kw_only=True)
class ProbeData:
    """Rows read off runs, one for each step that was asked about.

    `activations`: of each site `[rows, features]`, float32. `labels [rows]`
    bool. `tasks`, `runs`, `steps [rows]`.
    `prefixes [rows]`: token ids up to and with the deciding one, which is all
    that a text-only baseline may see.
    `columns`: other scores `[rows]` to hold the probe against; turn number and
    length are always there.
    `unread`: steps that were asked about and could not be read.
    """

    activations: Mapping[str, Floats]
    labels: Floats
    tasks: tuple[str, ...]
    runs: tuple[str, ...]
    steps: Floats
    prefixes: tuple[Floats, ...]
    columns: Mapping[str, Floats]
    unread: int = 0

    def __post_init__(self) -> None:
        rows = len(self.labels)
        lengths = {
            *map(len, (self.tasks, self.runs, self.steps, self.prefixes)),
            *map(len, self.activations.values()),
            *map(len, self.columns.values()),
        }
        if lengths != {rows}:
            raise UserError(
                f"readings of {rows} labels hold parts of {sorted(lengths)} rows; give one entry"
                " a row"
            )

    def at(self, sites: Collection[str]) -> "ProbeData":
        """The activations of some sites only."""
        return replace(
            self, activations={site: x for site, x in self.activations.items() if site in sites}
        )

    def where(self, rows: Floats) -> "ProbeData":
        """Some rows only, by a mask or by numbers."""
        chosen = np.arange(len(self.labels))[rows]
        return ProbeData(
            activations={site: x[chosen] for site, x in self.activations.items()},
            labels=self.labels[chosen],
            tasks=tuple(self.tasks[i] for i in chosen),
            runs=tuple(self.runs[i] for i in chosen),
            steps=self.steps[chosen],
            prefixes=tuple(self.prefixes[i] for i in chosen),
            columns={name: column[chosen] for name, column in self.columns.items()},
            unread=self.unread,
        )


def will_use(
    kinds: Collection[str], *, until_first: bool = False, turn: int | None = None
) -> Question:
    """Will this step hold an action of one of these kinds? Every action of a
    run is asked about.

    `until_first`: only up to the first such action, as one that has read a key
    may never read it again. `turn`: only the action of this number, from 0, so
    that the turn itself tells nothing.
    """
    wanted = frozenset(kinds)

    def ask(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
        for place, (number, step) in enumerate(trajectory.actions):
            yes = not wanted.isdisjoint(step.kinds)
            if turn is None or place == turn:
                yield number, yes
            if yes and until_first:
                return

    return ask


def will_succeed(*, win: float = 0.5, at: str = "last", kinds: Collection[str] = ()) -> Question:
    """Will this run's outcome be at least `win`? Asked at its `first`, its
    `last` or `every` action.

    `kinds`: only actions that hold one of these count (none given: all). Runs
    without an outcome are not asked about. Raises `UserError` for another `at`.
    """
    if at not in ("first", "last", "every"):
        raise UserError(f"runs cannot be asked at their '{at}' action; known: first, last, every")
    wanted = frozenset(kinds)

    def ask(trajectory: Trajectory) -> Iterator[tuple[int, bool]]:
        if trajectory.outcome is None:
            return
        steps = [
            i for i, step in trajectory.actions if not wanted or not wanted.isdisjoint(step.kinds)
        ]
        chosen = steps if at == "every" else steps[:1] if at == "first" else steps[-1:]
        for number in chosen:
            yield number, trajectory.outcome >= win

    return ask


@dataclass(frozen=True, kw_only=True)
class RunActivations:
    """Readings at every action of some runs, from which questions take their
    rows, so that no model is asked twice.
    """

    readings: ProbeData
    runs: Sequence[Trajectory]

    @classmethod
    def of(
        cls,
        policy: Any,
        runs: Iterable[Trajectory],
        sites: Sequence[str],
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> "RunActivations":
        """Runs are read in the order of their ids. Raises as `collect_activations` does."""
        ordered = sorted(runs, key=lambda run: run.id)
        readings = collect_activations(
            policy,
            ordered,
            sites=sites,
            question=lambda run: ((number, False) for number, _ in run.actions),
            progress=lambda done: progress(done, len(ordered)),
        )
        return cls(readings=readings, runs=ordered)

    def asked(self, question: Question) -> ProbeData:
        """The rows that a question names, with its answers as labels."""
        answers = {(run.id, step): yes for run in self.runs for step, yes in question(run)}
        places = list(zip(self.readings.runs, self.readings.steps.tolist(), strict=True))
        rows = np.array([i for i, place in enumerate(places) if place in answers], np.int64)
        labels = np.array([answers[places[i]] for i in rows], bool)
        return replace(self.readings.where(rows), labels=labels, unread=len(answers) - len(rows))


@dataclass(frozen=True, kw_only=True)
class _ProbedText:
    """One run: its text up to the last deciding token; `at`, `steps`, `turns`
    and `labels` of what is asked.
    """

    run: Trajectory
    ids: Floats
    at: Floats
    steps: Floats
    turns: Floats
    labels: Floats
    unread: int


def collect_activations(
    policy: Any,
    trajectories: Iterable[Trajectory],
    *,
    sites: Sequence[str],
    question: Question,
    progress: Callable[[int], None] = lambda done: None,
) -> ProbeData:
    """Activations (float32) at the deciding tokens of the steps that `question`
    names, in the order of the runs.

    `sites`: TransformerLens names. `progress` is told how many runs were read.
    Raises `UserError` for a policy that shows no activations, an unknown site,
    or runs of which no step is asked about.
    """
    if not sites:
        raise UserError("no site to read; give at least one such as blocks.0.hook_resid_post")
    require(policy, "activations", task="a linear probe")
    runs = iter(trajectories)
    texts: list[_ProbedText] = []
    kept: dict[str, list[Floats]] = {site: [] for site in sites}
    while window := list(islice(runs, WINDOW)):
        part = [_probed_text(run, policy, question) for run in window]
        for site, rows in _read(policy, part, sites).items():
            kept[site].append(rows)
        texts += part
        progress(len(texts))
    return _readings(texts, kept)


def _probed_text(run: Trajectory, policy: Any, question: Question) -> _ProbedText:
    most = policy.context_length if "tokens" in policy.capabilities else None
    layout = layout_of(with_token_ids(run, policy) if lacks_token_ids(run) else run, most)
    firsts = {
        int(step): int(layout.at[i]) - 1 for i, step in reversed(list(enumerate(layout.step)))
    }
    turns = {number: turn for turn, (number, _) in enumerate(run.actions)}
    wanted = list(question(run))
    rows = [
        (firsts[step], step, turns[step], label)
        for step, label in wanted
        if firsts.get(step, -1) >= 0
    ]
    at = np.array([row[0] for row in rows], np.int64)
    return _ProbedText(
        run=run,
        ids=layout.ids[: at.max() + 1] if len(at) else layout.ids[:0],
        at=at,
        steps=np.array([row[1] for row in rows], np.int64),
        turns=np.array([row[2] for row in rows], float),
        labels=np.array([row[3] for row in rows], bool),
        unread=len(wanted) - len(rows),
    )


def _read(policy: Any, texts: Sequence[_ProbedText], sites: Sequence[str]) -> dict[str, Floats]:
    """Activations of each site `[asked positions, features]`, in the order of `asked`."""
    order = [
        i
        for i in np.argsort([len(one.ids) for one in texts], kind="stable").tolist()
        if len(texts[i].at)
    ]
    rows_by_site: dict[str, list[Any]] = {site: [None] * len(texts) for site in sites}
    for batch in _batches(order, texts):
        read = _forward if "weights" in policy.capabilities else _through_protocol
        for site, rows in read(policy, [texts[i] for i in batch], sites).items():
            for i, one in zip(batch, rows, strict=True):
                rows_by_site[site][i] = one
    parts = {site: [row for row in rows if row is not None] for site, rows in rows_by_site.items()}
    return {site: np.concatenate(rows) for site, rows in parts.items() if rows}


def _batches(order: Sequence[int], texts: Sequence[_ProbedText]) -> Iterator[list[int]]:
    """Runs of like length, as many as fit: padded, they hold at most `TOKENS_AT_ONCE` tokens."""
    batch: list[int] = []
    for i in order:
        if batch and len(texts[i].ids) * (len(batch) + 1) > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _forward(
    policy: Any, batch: Sequence[_ProbedText], sites: Sequence[str]
) -> dict[str, list[Floats]]:
    import torch

    model = policy.model
    ids = torch.zeros((len(batch), max(len(one.ids) for one in batch)), dtype=torch.long)
    for row, one in enumerate(batch):
        ids[row, : len(one.ids)] = torch.from_numpy(one.ids)
    rows = torch.repeat_interleave(
        torch.arange(len(batch)), torch.tensor([len(one.at) for one in batch])
    )
    where = torch.from_numpy(np.concatenate([one.at for one in batch]))
    seen: dict[str, Floats] = {}

    def keep(site: str) -> Callable[[Any], None]:
        def hook(activation: Any) -> None:
            seen[site] = (
                activation[rows.to(activation.device), where.to(activation.device)]
                .float()
                .cpu()
                .numpy()
            )

        return hook

    with policy.within(), ExitStack() as stack, torch.inference_mode():
        for site in sites:
            stack.callback(attach(model, site, keep(site)).remove)
        model(ids.to(model.device), use_cache=False, logits_to_keep=1)
    ends = np.cumsum([len(one.at) for one in batch])[:-1]
    return {site: np.split(seen[site], ends) for site in sites}


def _through_protocol(
    policy: Any, batch: Sequence[_ProbedText], sites: Sequence[str]
) -> dict[str, list[Floats]]:
    """For backends that are not a Hugging Face model: one text at a time, whole."""
    rows: dict[str, list[Floats]] = {site: [] for site in sites}
    for one in batch:
        (whole,) = policy.activations([one.ids.tolist()], sites)
        for site in sites:
            rows[site].append(np.asarray(whole[site], np.float32)[one.at])
    return rows


def _readings(texts: Sequence[_ProbedText], kept: dict[str, list[Floats]]) -> ProbeData:
    if not any(len(one.at) for one in texts):
        raise UserError(
            f"of {len(texts)} runs no step can be read for this question; ask about steps that they"
            " have"
        )
    steps = np.concatenate([one.steps for one in texts])
    length = np.concatenate([one.at + 1 for one in texts]).astype(float)
    return ProbeData(
        activations={site: np.concatenate(rows) for site, rows in kept.items()},
        labels=np.concatenate([one.labels for one in texts]),
        tasks=tuple(one.run.task for one in texts for _ in one.at),
        runs=tuple(one.run.id for one in texts for _ in one.at),
        steps=steps,
        prefixes=tuple(one.ids[: at + 1] for one in texts for at in one.at.tolist()),
        columns={
            "turn number": np.concatenate([one.turns for one in texts]),
            "length of the text": length,
        },
        unread=sum(one.unread for one in texts),
    )


def text_features(
    source: ProbeData, target: ProbeData, most_tokens: int
) -> dict[str, tuple[Floats, Floats]]:
    """Features of the rows of both `[rows, features]`, by the baseline's name.
    `most_tokens`: the commonest ones, by rows of the source that have them; no
    label is looked at.
    """
    features: dict[str, tuple[Floats, Floats]] = {}
    for name, last in ((WHOLE_BAG, 0), (RECENT_BAG, RECENT)):
        texts, others = ([prefix[-last:] for prefix in one.prefixes] for one in (source, target))
        rows = Counter(token for text in texts for token in np.unique(text).tolist())
        commonest = sorted(rows, key=lambda token: (-rows[token], token))[:most_tokens]
        known = {token: place for place, token in enumerate(commonest)}
        if known:
            features[name] = _bag(texts, known), _bag(others, known)
    for name in source.columns:
        if name in target.columns:
            features[name] = source.columns[name][:, None], target.columns[name][:, None]
    return features


def _bag(texts: Sequence[Floats], known: dict[int, int]) -> Floats:
    bag = np.zeros((len(texts), len(known)), np.float32)
    for row, text in enumerate(texts):
        tokens, counts = np.unique(text, return_counts=True)
        for token, count in zip(tokens.tolist(), counts.tolist(), strict=True):
            if token in known:
                bag[row, known[token]] = count
    return np.log1p(bag)
