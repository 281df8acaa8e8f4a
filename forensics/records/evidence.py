"""Evidence: a question answered with a number, its doubt, its control, and how
to replay it.

`Evidence` and `Undefined` are the only two things an instrument yields. The
verdict matches on `question`, never on `method`. Neither carries an absolute
path or a time: the same case gives the same bytes. Artifacts are tables,
figures and text spans that the report draws without knowing the method that
made them.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from forensics.records.record import Record, Texts, VersionedRecord, content_hash
from forensics.records.verdict import Estimate

Scalar = float | int | bool | str | None


class Interval(Record):
    """A confidence interval at `level` (0.95 means 95 %)."""

    low: float
    high: float
    level: float = 0.95

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"interval ends are swapped: {self.low} > {self.high}")
        return self

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


class Control(Record):
    """What the estimate was set against: a null or a control of equal size that
    should show nothing.
    """

    name: str
    estimate: float | None = None
    interval: Interval | None = None
    p_value: float | None = None


def optional(default: Any = None) -> Any:
    """A field that came later: where it is absent, the bytes are those of before."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Table(Record):
    """`units`: of columns with numbers, such as `share`, `score difference` or
    `AUROC`; what is `None` there was not measured.
    """

    kind: Literal["table"] = "table"
    title: str
    columns: Texts
    rows: tuple[tuple[Scalar | Estimate, ...], ...]
    units: dict[str, str] = optional({})


class Series(Record):
    """Named points of a figure: `y` per `x` label, with interval ends where
    they are known. `labels`: what a pointer over each point is told.
    """

    name: str
    x: tuple[str | float, ...]
    y: tuple[float | None, ...]
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None
    labels: Texts | None = optional()


class Figure(Record):
    """A figure specification.

    `form`: points with whiskers, bars, stacked bars, or lines; a grid, whose
    rows are the series and whose cells are shares in [0, 1], some of them
    `framed` (name of the series, x); or a scatter of numbers.
    """

    kind: Literal["figure"] = "figure"
    title: str
    form: Literal["points", "bars", "stacked", "lines", "grid", "scatter"]
    x_label: str = ""
    y_label: str = ""
    series: tuple[Series, ...]
    framed: tuple[tuple[str, str], ...] = optional(())


class Span(Record):
    """A highlighted piece of one step; `start`/`end` are character offsets
    (`None`: the whole step).
    """

    step: int
    label: str
    start: int | None = None
    end: int | None = None


class Spans(Record):
    kind: Literal["spans"] = "spans"
    title: str
    trajectory: str
    spans: tuple[Span, ...]


Artifact = Annotated[Table | Figure | Spans, Field(discriminator="kind")]


class Provenance(Record):
    """What is needed to replay a number: who measured, how configured, on what, with which code."""

    instrument: str
    config: dict[str, Scalar | list[Scalar]] = {}
    seed: int | None = None
    inputs: dict[str, str] = {}  # name -> content hash
    code: str = ""


class Answer(VersionedRecord):
    """What both answers to a question share.

    `question` is a dotted name such as `gain.total`; `about` narrows it (a
    channel, a step kind).
    """

    question: str
    about: str | None = None
    layer: str
    method: str
    provenance: Provenance


class Evidence(Answer):
    """A measured answer.

    `n` counts observations, `clusters` the independent units (tasks, or seeds)
    behind the interval. `summary` is one plain sentence with the number in it.
    """

    kind: Literal["evidence"] = "evidence"
    estimate: float
    unit: str
    interval: Interval | None = None
    n: int
    clusters: int
    control: Control | None = None
    diagnostics: dict[str, Scalar] = {}
    artifacts: tuple[Artifact, ...] = ()
    summary: str = ""

    @property
    def id(self) -> str:
        """A content address of this evidence."""
        return content_hash(self, 12)


class Undefined(Answer):
    """The question could not be answered: why, and what would cure it."""

    kind: Literal["undefined"] = "undefined"
    reason: str
    cure: str

    @property
    def id(self) -> str:
        return content_hash(self, 12)


EvidenceRow = Annotated[Evidence | Undefined, Field(discriminator="kind")]
