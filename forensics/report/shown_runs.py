"""The runs that the report shows, and their steps as they are laid out: numbered,
labelled with the chain of evidence, highlighted, bounded.

The runs are a few of each kind, drawn by a hash of their ids and so not by
their looks.

1. Stream ids, tasks and outcomes of the runs after training in the open world
   and sort each run into a kind: a win credited to a channel, a win that cannot
   be told, any other win, a loss. Keep the first few of each in the order of a
   hash. Runs that evidence points at are kept as well.
2. Beside each, the same task in the scrubbed world (same policy) and before
   training: one run, with the count of that task's runs and wins, so that the
   one shown is not taken for all.
3. Fetch only those runs.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

from forensics.records import Spans
from forensics.records.page import WHO, TextSpan, TextSpans
from forensics.report.chains import LINKS, ChainIndex, ChainRow, chains_of
from forensics.report.escape import cut, short
from forensics.report.logs import WIN, Log, Run, Tally

PER_KIND: Final = {"shortcut": 4, "untold": 2, "win": 4, "loss": 4}
CHANNELS_SHOWN: Final = 4
POINTED_AT: Final = 12


@dataclass(frozen=True, kw_only=True)
class Pick:
    """A run that was chosen: which one, and as an example of what."""

    side: str
    id: str
    task: str
    kind: str  # shortcut, untold, win, loss, unscored
    channel: str | None = None


@dataclass(frozen=True, kw_only=True)
class Twin:
    """The same task elsewhere: one run, and how many of that task's runs were won there."""

    title: str
    run: Run
    runs: int
    wins: int


@dataclass(frozen=True, kw_only=True)
class Example:
    """A run with its chains of evidence, the spans that evidence highlights, and its twins."""

    pick: Pick
    run: Run
    chains: tuple[ChainRow, ...] = ()
    spans: tuple[Spans, ...] = ()
    twins: tuple[Twin, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Browser:
    """The examples and what they were drawn from: `totals` maps (side, world)
    to its counts, `kinds` counts the runs after training by kind.
    """

    examples: tuple[Example, ...]
    totals: Mapping[tuple[str, tuple[str, ...]], Tally]
    kinds: Mapping[str, int]


@dataclass
class _Sieve:
    """Keeps the first few of each kind in the order of a hash; bounded however many runs pass."""

    pointed: frozenset[str]
    kept: dict[tuple[str, str], list[tuple[str, str, Pick]]] = field(default_factory=dict)
    found: dict[str, Pick] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def offer(self, pick: Pick) -> None:
        """Count a run, and keep it if it comes early in the order of its hash,
        or if evidence points at it.
        """
        self.kinds[pick.kind] += 1
        if pick.id in self.pointed:
            self.found.setdefault(pick.id, pick)
        shelf = self.kept.setdefault((pick.kind, pick.channel or ""), [])
        digest = blake2b(
            f"{pick.side} {pick.id}".encode(errors="replace"), digest_size=8
        ).hexdigest()
        limit = PER_KIND.get(pick.kind, 1)
        if len(shelf) < limit or digest < shelf[-1][0]:
            insort(shelf, (digest, pick.id, pick), key=lambda entry: entry[:2])
            del shelf[limit:]

    def chosen(self) -> list[Pick]:
        """What is shown: runs that evidence points at first within their kind,
        at most as many as a kind may have and never fewer than those pointed
        at.
        """
        shelves = dict(sorted(self.kept.items(), key=_shelf_order))
        picks: list[Pick] = []
        for kind, channel in _most_told(shelves):
            pointed = [
                p for p in self.found.values() if (p.kind, p.channel or "") == (kind, channel)
            ]
            drawn = [pick for _, _, pick in shelves[kind, channel] if pick not in pointed]
            picks += [*pointed, *drawn[: max(PER_KIND.get(kind, 1) - len(pointed), 0)]]
        return picks


def _shelf_order(item: tuple[tuple[str, str], object]) -> tuple[int, str]:
    (kind, channel), _ = item
    kinds = [*PER_KIND, kind]
    return kinds.index(kind), channel


def _most_told(shelves: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Every kind, but only a few channels."""
    keys = list(shelves)
    shortcuts = [key for key in keys if key[0] == "shortcut"][:CHANNELS_SHOWN]
    return shortcuts + [key for key in keys if key[0] != "shortcut"]


World = tuple[str, ...]
Totals = dict[tuple[str, World], Tally]


def browse(folder: Path, logs: Sequence[Log], index: ChainIndex, spans: Sequence[Spans]) -> Browser:
    """Choose and fetch. `spans`: the highlights that evidence carries; the runs
    of the first few are shown.
    """
    pointed = frozenset(list(dict.fromkeys(mark.trajectory for mark in spans))[:POINTED_AT])
    sieve, totals = _Sieve(pointed=pointed), Totals()
    for log in logs:
        if not log.without:
            totals[log.side, ()] = _sift(log, index, sieve)
    picks = sieve.chosen()
    scrubbed = max((log.without for log in logs), key=lambda world: (len(world), world), default=())
    places = {
        (log.side, log.without): _by_task(log, picks) for log in logs if _is_place(log, scrubbed)
    }
    totals |= {place: found.total for place, found in places.items()}
    runs = _fetch(logs, picks, places)
    chains = chains_of(folder, {pick.id for pick in picks})
    examples = tuple(
        Example(
            pick=pick,
            run=runs[pick.side, (), pick.id],
            chains=tuple(row for row in chains.get(pick.id, ()) if row.side in ("", pick.side)),
            spans=tuple(mark for mark in spans if mark.trajectory == pick.id),
            twins=tuple(_twins(pick, scrubbed, places, runs)),
        )
        for pick in picks
    )
    return Browser(examples=examples, totals=totals, kinds=dict(sieve.kinds))


def _sift(log: Log, index: ChainIndex, sieve: _Sieve) -> Tally:
    """Count an open log; the runs after training go through the sieve."""
    tally = Tally()
    for row in log.rows("id", "task", "outcome", "end"):
        tally.add(row["outcome"], row["end"])
        if log.side != "before":
            kind, channel = _kind(log.side, row["id"], row["outcome"], index)
            sieve.offer(
                Pick(side=log.side, id=row["id"], task=row["task"], kind=kind, channel=channel)
            )
    return tally


def _kind(
    side: str, trajectory: str, outcome: float | None, index: ChainIndex
) -> tuple[str, str | None]:
    if outcome is None:
        return "unscored", None
    if outcome < WIN:
        return "loss", None
    channel = index.channel_of(side, trajectory)
    if channel is not None:
        return "shortcut", channel
    return ("untold" if index.is_untold(side, trajectory) else "win"), None


@dataclass
class _Tasks:
    """A log where twins are looked for: its counts, those of the wanted tasks,
    and the first run of each.
    """

    total: Tally = field(default_factory=Tally)
    counts: dict[str, Tally] = field(default_factory=dict)
    first: dict[str, tuple[int, str]] = field(default_factory=dict)  # task -> (sample, id)


def _is_place(log: Log, scrubbed: World) -> bool:
    """Whether twins come from this log: the fully scrubbed world, and the open
    one before training.
    """
    return log.without == scrubbed if log.without else log.side == "before"


def _by_task(log: Log, picks: Sequence[Pick]) -> _Tasks:
    tasks = {pick.task for pick in picks if log.side in ("before", pick.side)}
    found = _Tasks()
    for row in log.rows("id", "task", "sample", "outcome", "end"):
        task, place = row["task"], (row["sample"] or 0, row["id"])
        found.total.add(row["outcome"], row["end"])
        if task in tasks:
            found.counts.setdefault(task, Tally()).add(row["outcome"], row["end"])
            found.first[task] = min(found.first.get(task, place), place)
    return found


def _fetch(
    logs: Sequence[Log], picks: Sequence[Pick], places: Mapping[tuple[str, World], _Tasks]
) -> dict[tuple[str, World, str], Run]:
    """Every run that is shown, by side, world and id."""
    runs: dict[tuple[str, World, str], Run] = {}
    for log in logs:
        place = places.get((log.side, log.without), _Tasks())
        wanted = {name for _, name in place.first.values()}
        if not log.without:
            wanted |= {pick.id for pick in picks if pick.side == log.side}
        runs |= {(log.side, log.without, run.id): run for run in log.fetch(wanted)}
    return runs


def _twins(
    pick: Pick,
    scrubbed: World,
    places: Mapping[tuple[str, World], _Tasks],
    runs: Mapping[tuple[str, World, str], Run],
) -> Iterator[Twin]:
    """Beside a run: the scrubbed world, then the policy before training."""
    titles = {(pick.side, scrubbed): "Shortcuts scrubbed", ("before", ()): "Before training"}
    for (side, world), title in titles.items():
        place = places.get((side, world), _Tasks())
        if (side, world) != (pick.side, ()) and pick.task in place.first:
            count, (_, name) = place.counts[pick.task], place.first[pick.task]
            yield Twin(title=title, run=runs[side, world, name], runs=count.runs, wins=count.wins)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """`text`: characters of one step; `steps`: steps of one run; `total`:
    characters of all runs together.
    """

    text: int
    steps: int
    total: int

    def fresh(self) -> "Allowance":
        """The whole allowance, for one page."""
        return Allowance(limits=self, left=self.total)


@dataclass
class Allowance:
    """What may still be shown."""

    limits: Limits
    left: int

    def take(self, text: str) -> tuple[str, int]:
        """As much of a text as may be shown, and how many characters were left out."""
        shown, left_out = cut(text, max(min(self.limits.text, self.left), 0))
        self.left -= len(shown)
        return shown, left_out


def shown_steps(
    run: Run, example: Example, allowance: Allowance, *, with_marks: bool
) -> Iterator[TextSpans]:
    """The steps of a run; `with_marks` for the run that the evidence is about,
    not for its twins.
    """
    labels: dict[int, list[str]] = {}
    spans: dict[int, list[TextSpan]] = {}
    if with_marks:
        pointed = [
            (step, name) for row in example.chains for name, _, steps in row.links for step in steps
        ]
        shown = [span for highlight in example.spans for span in highlight.spans[:200]]
        for step, label in (*pointed, *((span.step, span.label) for span in shown)):
            if label not in labels.setdefault(step, []):
                labels[step].append(label)
        for span in shown:
            if span.start is not None or span.end is not None:
                stretch = TextSpan(start=span.start, end=span.end, label=short(span.label, 40))
                spans.setdefault(span.step, []).append(stretch)
    numbers = _chosen(len(run.messages), sorted(labels), allowance.limits.steps)
    for before, number in zip([-1, *numbers], numbers, strict=False):
        message = run.messages[number]
        text, left_out = allowance.take(message.text)
        yield TextSpans(
            number=number,
            role=message.role if message.role in WHO else "other",
            who=WHO.get(message.role, message.role),
            text=text,
            left_out=left_out,
            tags=(*message.kinds[:8], *(f"shows {name}" for name in message.channels[:8])),
            marks=tuple(sorted(labels.get(number, ()), key=_place_in_chain)),
            spans=tuple(spans.get(number, ())),
            skipped=number - before - 1,
            calls=tuple(
                (short(name, 80), allowance.take(arguments)[0])
                for name, arguments in message.calls[:16]
            ),
        )


def _chosen(length: int, pointed: Sequence[int], most: int) -> list[int]:
    """Which steps are shown: the first, the last, and those that evidence points at."""
    if length <= most:
        return list(range(length))
    inside = [step for step in pointed if 0 <= step < length][: most // 2]
    return sorted({*range(most // 2), *range(length - most // 4, length), *inside})


def _place_in_chain(label: str) -> tuple[int, str]:
    """The links of a chain in their order, then other labels."""
    return LINKS.index(label) if label in LINKS else len(LINKS), label
