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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

from forensics.records import Spans, Trajectory
from forensics.records.finding import LINKS, Finding
from forensics.records.page import TextSpan, TextSpans, step_text
from forensics.report.case_logs import Log, Tally, won
from forensics.report.escape import cut, short
from forensics.report.rows import ChainIndex, chains_of

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
    side: str
    run: Trajectory
    runs: int
    wins: int


@dataclass(frozen=True, kw_only=True)
class Example:
    """A run with its chains of evidence, the spans that evidence highlights, and its twins."""

    pick: Pick
    run: Trajectory
    chains: tuple[Finding, ...] = ()
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


World = tuple[str, ...]


def browse(folder: Path, logs: Sequence[Log], index: ChainIndex, spans: Sequence[Spans]) -> Browser:
    """Choose and fetch. `spans`: the highlights that evidence carries; the runs
    of the first few are shown.
    """
    sample = RunSample(frozenset(list(dict.fromkeys(one.trajectory for one in spans))[:POINTED_AT]))
    totals: dict[tuple[str, World], Tally] = {}
    for log in logs:
        if not log.without:
            totals[log.side, ()] = sample.offer(log, index)
    picks = sample.chosen()
    scrubbed = max((log.without for log in logs), key=lambda world: (len(world), world), default=())
    # twins come from the fully scrubbed world, and from the open one before training
    places = {
        (log.side, log.without): TwinLog.of(log, picks)
        for log in logs
        if (log.without == scrubbed if log.without else log.side == "before")
    }
    totals |= {place: found.total for place, found in places.items()}
    runs: dict[tuple[str, World, str], Trajectory] = {}
    for log in logs:
        place = places.get((log.side, log.without))
        wanted = {name for _, name in place.first.values()} if place else set()
        if not log.without:
            wanted |= {pick.id for pick in picks if pick.side == log.side}
        runs |= {(log.side, log.without, run.id): run for run in log.fetch(wanted)}

    def twins(pick: Pick) -> Iterator[Twin]:
        titles = {(pick.side, scrubbed): "Shortcuts scrubbed", ("before", ()): "Before training"}
        for (side, world), title in titles.items():
            place = places.get((side, world))
            if place and (side, world) != (pick.side, ()) and pick.task in place.first:
                count, (_, name) = place.counts[pick.task], place.first[pick.task]
                run = runs[side, world, name]
                yield Twin(title=title, side=side, run=run, runs=count.runs, wins=count.wins)

    chains = chains_of(folder, {pick.id for pick in picks})
    examples = tuple(
        Example(
            pick=pick,
            run=runs[pick.side, (), pick.id],
            chains=tuple(row for row in chains.get(pick.id, ()) if row.side in ("", pick.side)),
            spans=tuple(one for one in spans if one.trajectory == pick.id),
            twins=tuple(twins(pick)),
        )
        for pick in picks
    )
    return Browser(examples=examples, totals=totals, kinds=dict(sample.kinds))


@dataclass
class RunSample:
    """The first few runs of each kind in the order of a hash, and those that
    evidence points at (`pointed`); bounded however many runs pass.
    """

    pointed: frozenset[str]
    kept: dict[tuple[str, str], list[tuple[str, str, Pick]]] = field(default_factory=dict)
    found: dict[str, Pick] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    def offer(self, log: Log, index: ChainIndex) -> Tally:
        """Count the runs of an open log; those after training may be kept."""
        tally = Tally()
        for row in log.rows("id", "task", "outcome", "end"):
            tally.add(row["outcome"], row["end"])
            if log.side == "before":
                continue
            name, channel = row["id"], None
            kind = {None: "unscored", False: "loss", True: "win"}[won(row["outcome"])]
            if kind == "win" and (channel := index.channel_of(log.side, name)) is not None:
                kind = "shortcut"
            elif kind == "win" and index.is_untold(log.side, name):
                kind = "untold"
            pick = Pick(side=log.side, id=name, task=row["task"], kind=kind, channel=channel)
            self.kinds[kind] += 1
            if name in self.pointed:
                self.found.setdefault(name, pick)
            kept = self.kept.setdefault((kind, channel or ""), [])
            digest = blake2b(f"{log.side} {name}".encode(errors="replace"), digest_size=8)
            kept.append((digest.hexdigest(), name, pick))
            kept.sort(key=lambda entry: entry[:2])
            del kept[PER_KIND.get(kind, 1) :]
        return tally

    def chosen(self) -> list[Pick]:
        """Every kind, but only a few channels: runs that evidence points at
        first within their kind, at most as many as a kind may have and never
        fewer than those pointed at.
        """
        kinds = (*PER_KIND, "unscored")
        ordered = sorted(self.kept, key=lambda key: (kinds.index(key[0]), key[1]))
        shortcuts = [key for key in ordered if key[0] == "shortcut"][:CHANNELS_SHOWN]
        picks: list[Pick] = []
        for key in (*shortcuts, *(key for key in ordered if key[0] != "shortcut")):
            pointed = [p for p in self.found.values() if (p.kind, p.channel or "") == key]
            drawn = [pick for _, _, pick in self.kept[key] if pick not in pointed]
            picks += [*pointed, *drawn[: max(PER_KIND.get(key[0], 1) - len(pointed), 0)]]
        return picks


@dataclass
class TwinLog:
    """A log where twins are looked for: its counts, those of the wanted tasks,
    and the first run of each, as (sample, id).
    """

    total: Tally = field(default_factory=Tally)
    counts: dict[str, Tally] = field(default_factory=dict)
    first: dict[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, log: Log, picks: Sequence[Pick]) -> "TwinLog":
        """What a log holds of the tasks of these runs."""
        tasks = {pick.task for pick in picks if log.side in ("before", pick.side)}
        found = cls()
        for row in log.rows("id", "task", "sample", "outcome", "end"):
            task, place = row["task"], (row["sample"] or 0, row["id"])
            found.total.add(row["outcome"], row["end"])
            if task in tasks:
                found.counts.setdefault(task, Tally()).add(row["outcome"], row["end"])
                found.first[task] = min(found.first.get(task, place), place)
        return found


@dataclass(kw_only=True)
class Allowance:
    """What a page may still show. `text`: characters of one step; `steps`: steps
    of one run; `total`: characters of all runs together, less what was taken.
    """

    text: int
    steps: int
    total: int

    def take(self, text: str) -> tuple[str, int]:
        """As much of a text as may be shown, and how many characters were left out."""
        shown, left_out = cut(text, max(min(self.text, self.total), 0))
        self.total -= len(shown)
        return shown, left_out


def shown_steps(
    run: Trajectory, example: Example, allowance: Allowance, *, with_marks: bool
) -> Iterator[TextSpans]:
    """The steps of a run; `with_marks` for the run that the evidence is about,
    not for its twins.
    """
    labels: dict[int, set[str]] = {}
    spans: dict[int, list[TextSpan]] = {}
    if with_marks:
        for row in example.chains:
            for name, _, cited in row.links:
                for number in cited:
                    labels.setdefault(number, set()).add(name)
        for span in (span for one in example.spans for span in one.spans[:200]):
            labels.setdefault(span.step, set()).add(span.label)
            if span.start is not None or span.end is not None:
                stretch = TextSpan(start=span.start, end=span.end, label=short(span.label, 40))
                spans.setdefault(span.step, []).append(stretch)
    length, most = len(run.steps), allowance.steps
    numbers = list(range(length))
    if length > most:  # the first, the last, and those that evidence points at
        inside = [step for step in sorted(labels) if 0 <= step < length][: most // 2]
        numbers = sorted({*range(most // 2), *range(length - most // 4, length), *inside})
    for before, number in zip([-1, *numbers], numbers, strict=False):
        step = run.steps[number]
        text, left_out = allowance.take(step.text)
        yield step_text(
            number,
            step,
            text=text,
            left_out=left_out,
            tags=(*step.kinds[:8], *(f"shows {name}" for name in step.channels[:8])),
            marks=tuple(sorted(labels.get(number, ()), key=lambda m: ((*LINKS, m).index(m), m))),
            spans=tuple(spans.get(number, ())),
            skipped=number - before - 1,
            calls=tuple(
                (short(call.name, 80), allowance.take(call.arguments)[0])
                for call in step.tool_calls[:16]
            ),
        )
