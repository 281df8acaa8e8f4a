"""What a study of cliffs leaves in its folder: rows for machines and a page for
people.

The page shows each trace with the potential under its tokens, cliffs marked,
alternatives on click. It is one self-contained file without any script: an
alternative opens as a `details` element, so the page works where scripts are
off, and nothing that a model wrote can act in it (see
`forensics.report.pages`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from forensics import wording
from forensics.records import Figure, Series, Trajectory
from forensics.records.base import SCHEMA_VERSION
from forensics.records.files import write_json_lines
from forensics.report import charts, numbers
from forensics.report.pages import COMMON, content_policy, templates
from forensics.study import Folder
from resampling.study.cliff_study import Alternative, CliffStudy, RunsToContinue, cliff_row
from resampling.study.delete_keep import DeleteKeep
from resampling.trace_rollouts import Trace

LEVELS = 20  # shades of potential


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One token that could have stood at a cliff, in text, and what would have come of it."""

    text: str
    probability: float
    potential: float | None
    low: float | None
    high: float | None
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A confirmed cliff. `drop`, `contrast` and their ends are shares;
    `restored`: delete minus keep at pass@1.
    """

    drop: float
    low: float
    high: float
    contrast: float
    e_value: float
    kind: str | None
    probability: float
    choices: tuple[Choice, ...] = ()
    restored: float | None = None
    control: float | None = None


@dataclass(frozen=True, kw_only=True)
class Word:
    """One sampled token. `position` among the sampled tokens; `potential` after
    it (`None`: not estimated).
    """

    text: str
    position: int
    potential: float | None
    mark: Mark | None = None

    @property
    def shade(self) -> int | None:
        """The potential as one of `LEVELS + 1` shades."""
        return None if self.potential is None else round(LEVELS * self.potential)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One step: what the policy wrote, token by token (`words`), or what it was told (`text`)."""

    step: int
    role: str
    kinds: tuple[str, ...] = ()
    shortcut: bool = False
    text: str = ""
    words: tuple[Word, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TraceView:
    """One run. `potentials`, `low`, `high` `[N + 1]`, from the prompt on; `None`: not estimated."""

    id: str
    task: str
    outcome: float | None
    turns: tuple[Turn, ...]
    potentials: tuple[float | None, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    @property
    def marks(self) -> tuple[Word, ...]:
        """The tokens with a confirmed cliff."""
        return tuple(word for turn in self.turns for word in turn.words if word.mark is not None)


def trace_view(
    trajectory: Trajectory,
    trace: Trace,
    potentials: np.ndarray,
    marks: Mapping[int, Mark],
    token_text: Callable[[int], str],
    shortcuts: frozenset[str] = frozenset(),
    *,
    low: np.ndarray | None = None,
    high: np.ndarray | None = None,
) -> TraceView:
    """Words and potentials brought together. `potentials` `[N + 1]`; `marks` by
    position; `shortcuts`: kinds of steps that take a declared shortcut. Without
    `low` and `high` the interval is left out.
    """
    by_step: dict[int, list[int]] = {}
    for position, step in enumerate(trace.steps):
        by_step.setdefault(step, []).append(position)
    tokens = trace.tokens

    def word(position: int) -> Word:
        return Word(
            text=token_text(tokens[position]),
            position=position,
            potential=_known(potentials[position + 1]),
            mark=marks.get(position),
        )

    turns = [
        Turn(
            step=number,
            role=step.role,
            kinds=step.kinds,
            shortcut=bool(shortcuts & {*step.kinds}),
            text="" if number in by_step else step.text,
            words=tuple(map(word, by_step.get(number, ()))),
        )
        for number, step in enumerate(trajectory.steps)
    ]
    ends = (potentials if end is None else end for end in (low, high))
    below, above = (tuple(map(_known, end)) for end in ends)
    return TraceView(
        id=trajectory.id,
        task=trajectory.task,
        outcome=trajectory.outcome,
        turns=tuple(turns),
        potentials=tuple(map(_known, potentials)),
        low=below,
        high=above,
    )


def _known(value: float) -> float | None:
    """NaN as what it is: not known."""
    return None if np.isnan(value) else float(value)


def choices_of(
    alternatives: Sequence[Alternative], chosen: int, token_text: Callable[[int], str]
) -> tuple[Choice, ...]:
    """Alternatives in words, most probable first. `chosen`: the id of the trace's own token."""
    ordered = sorted(alternatives, key=lambda a: (-a.probability, a.token_id))
    texts = [token_text(a.token_id) for a in ordered]
    return tuple(
        Choice(
            text=text if text.strip() else repr(text),  # one that leaves nothing to see
            probability=a.probability,
            potential=a.potential,
            low=a.low,
            high=a.high,
            chosen=a.token_id == chosen,
        )
        for a, text in zip(ordered, texts, strict=True)
    )


FOLDER: Final = Path(__file__).parent / "templates"
MOST_TRACES: Final = 60
LONGEST: Final = 4000  # characters of one observation


def cliffs_page(
    title: str,
    summary: Sequence[str],
    traces: Sequence[TraceView],
    facts: Sequence[str] = (),
    command: str = "",
) -> str:
    """The page. `summary`: sentences under the title; `facts`: short ones
    beside it; `command`: how to replay it.

    Traces with cliffs come first; beyond `MOST_TRACES` the page says how many
    it leaves out.
    """
    ordered = sorted(traces, key=lambda view: -len(view.marks))
    shown = ordered[:MOST_TRACES]
    style = (COMMON / "report.css").read_text(encoding="utf-8")
    # for every shade of potential, the share of the bar under a token that is filled
    style += "".join(f".p{k}{{--filled:{100 * k // LEVELS}%}}" for k in range(LEVELS + 1))
    style += (FOLDER / "cliffs.css").read_text(encoding="utf-8")
    drawings = [
        Markup(charts.draw(potential_figure(view), prefix=f"trace-{i}"))
        for i, view in enumerate(shown)
    ]
    return (
        templates(FOLDER)
        .get_template("cliffs.html.j2")
        .render(
            title=title,
            summary=summary,
            facts=facts,
            command=command,
            traces=list(zip(shown, drawings, strict=True)),
            left_out=len(ordered) - len(shown),
            longest=LONGEST,
            style=Markup(style),
            policy=content_policy(style, ""),
            percent=numbers.percent,
            plain=numbers.plain,
        )
    )


def potential_figure(view: TraceView) -> Figure:
    """The potential along the sampled tokens, with its interval."""
    places = tuple(float(k) for k in range(len(view.potentials)))
    series = Series(name="potential", x=places, y=view.potentials, low=view.low, high=view.high)
    return Figure(
        title="Chance of success after each token",
        form="lines",
        x_label="sampled tokens kept",
        y_label="success",
        series=(series,),
    )


POTENTIALS = pa.schema(
    [
        ("trajectory", pa.string()),
        ("kept", pa.int32()),
        ("potential", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


def write_tables(folder: Folder, opened: RunsToContinue, study: CliffStudy) -> None:
    """Every file but `cliffs.json` and the page."""
    cliffs = (
        cliff_row(cliff, opened.token_text(cliff.token_id), delete_keep)
        for cliff, delete_keep in study.with_delete_keep()
    )
    write_json_lines(folder.path / "cliffs.jsonl", cliffs)
    potentials = (
        {
            "trajectory": trace.trace,
            "kept": kept,
            "potential": _known(trace.potentials[kept]),
            "low": _known(trace.low[kept]),
            "high": _known(trace.high[kept]),
        }
        for trace in study.report.traces
        for kept in range(len(trace.potentials))
    )
    folder.table("potentials.parquet", potentials, POTENTIALS)
    write_json_lines(folder.path / "delete_keep.jsonl", map(_arms, study.causation))
    pairs = (pair.model_dump(mode="json") for pair in study.pairs)
    write_json_lines(folder.path / "pairs.jsonl", pairs)


def page_of(opened: RunsToContinue, study: CliffStudy, command: str) -> str:
    """The page of a study, as HTML. `command`: how a reader does the first cliff again."""
    views = list(_views(opened, study))
    return cliffs_page(title(study), sentences(opened, study), views, facts(study), command)


def title(study: CliffStudy) -> str:
    """`3 cliffs in 20 runs`."""
    what = "rise" if study.provenance.config["rises"] else "cliff"
    return (
        f"{wording.plural(len(study.report.cliffs), what)} in"
        f" {wording.plural(len(study.report.traces), 'run')}"
    )


def sentences(opened: RunsToContinue, study: CliffStudy) -> list[str]:
    """What was found, with the figure that proves it and its control."""
    report, rises = study.report, study.provenance.config["rises"]
    tested = study.report.tested
    searched = wording.plural(sum(trace.searched for trace in report.traces), "token")
    texts = [
        f"Of {searched} that could decide at all, {tested} {_be(tested, 'was', 'were')} suspected"
        f" and tested on fresh samples; {len(report.cliffs)} {_be(len(report.cliffs), 'is', 'are')}"
        f" confirmed to {'raise' if rises else 'lower'} the chance of success."
    ]
    kinds = opened.shortcut_kinds()
    if kinds and report.cliffs:
        inside = sum(
            bool(kinds & {*opened.run(c.trace).steps[c.step].kinds}) for c in report.cliffs
        )
        texts.append(
            f"{inside} of them {_be(inside, 'stands', 'stand')} in steps that take a declared"
            " shortcut."
        )
    texts += _restored(study)
    if report.exhausted:
        texts.append("The budget ended before the search was done, so cliffs may be missing.")
    return texts


def _be(count: int, one: str, several: str) -> str:
    return one if count == 1 else several


def _restored(study: CliffStudy) -> list[str]:
    found = {row.what: row for row in study.restored if row.kind == "all"}
    if "cliff" not in found:
        return []
    parts = [
        (
            f"sampling afresh from before {name} instead of after them changes success by",
            found[what],
        )
        for what, name in (
            ("cliff", "these tokens"),
            ("control", "other tokens of the same potential"),
        )
        if what in found
    ]
    told = [
        f"{text} {wording.points(row.estimate)} points ({wording.point_range(row.low, row.high)})"
        for text, row in parts
    ]
    return [
        f"{wording.capital('; '.join(told))}, over {wording.plural(found['cliff'].tasks, 'task')}."
    ]


def facts(study: CliffStudy) -> list[str]:
    """What it cost and what is promised."""
    report, config = study.report, study.provenance.config
    lost = [f"{report.missing:,} rollouts missing"] if report.missing else []
    return [
        f"{report.rollouts:,} rollouts to search and confirm",
        f"{report.tokens:,} tokens",
        *lost,
        f"drops of {config['delta']} sought, of {config['delta0']} not reported",
        f"false discovery rate at most {config['fdr']}",
    ]


def _arms(row: DeleteKeep) -> dict[str, Any]:
    def cut(one: Any) -> dict[str, Any] | None:
        if one is None:
            return None
        passes = {
            name: {str(k): value for k, value in getattr(one, name).items()}
            for name in ("delete", "keep")
        }
        return {"token": one.token, **passes, "restored": one.restored, "missing": one.missing}

    return {
        "trajectory": row.trace,
        "task": row.task,
        "kind": row.kind,
        "cliff": cut(row.cliff),
        "control": cut(row.control),
    }


def summary_of(opened: RunsToContinue, study: CliffStudy, inputs: dict[str, Any]) -> dict[str, Any]:
    """What `cliffs.json` says."""
    report = study.report
    return {
        "schema_version": SCHEMA_VERSION,
        "inputs": inputs,
        "provenance": study.provenance.model_dump(mode="json"),
        "runs": len(report.traces),
        "cliffs": len(report.cliffs),
        "tested": study.report.tested,
        "rollouts": report.rollouts,
        "tokens": report.tokens,
        "missing": report.missing,
        "budget_exhausted": report.exhausted,
        # where the budget ended the search nobody knows what it would have suspected
        "expected_unseen": (
            None if report.exhausted else sum(trace.missed for trace in report.traces)
        ),
        "restored": [vars(row) for row in study.restored],
        "pairs": len(study.pairs),
        "sentences": sentences(opened, study),
    }


def _views(opened: RunsToContinue, study: CliffStudy) -> Iterator[TraceView]:
    marks: dict[str, dict[int, Mark]] = {}
    for place, (found, causation) in enumerate(study.with_delete_keep()):
        marks.setdefault(found.trace, {})[found.token] = _mark(opened, study, place, causation)
    traces = {trace.id: trace for trace in opened.traces}
    for found_trace in study.report.traces:
        name = found_trace.trace
        yield trace_view(
            opened.run(name),
            traces[name],
            found_trace.potentials,
            marks.get(name, {}),
            opened.token_text,
            opened.shortcut_kinds(),
            low=found_trace.low,
            high=found_trace.high,
        )


def _mark(
    opened: RunsToContinue, study: CliffStudy, place: int, causation: DeleteKeep | None
) -> Mark:
    found = study.report.cliffs[place]
    assert found.drop is not None and found.contrast is not None
    control = None if causation is None else causation.control
    return Mark(
        drop=found.drop.estimate,
        low=found.drop.low,
        high=found.drop.high,
        contrast=found.contrast.estimate,
        e_value=found.e_value,
        kind=found.kind,
        probability=found.probability,
        choices=choices_of(study.alternatives[place], found.token_id, opened.token_text),
        restored=None if causation is None else causation.cliff.restored,
        control=None if control is None else control.restored,
    )
