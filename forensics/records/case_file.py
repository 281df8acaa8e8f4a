"""The files of a case folder: `case.json` with the subjects that it compares,
and the rows of `loops.jsonl`, `integrity.jsonl` and `ablation.jsonl`.
"""

from typing import Any, Literal

from pydantic import Field

from forensics.records.record import Record, Texts, VersionedRecord, content_hash
from forensics.records.verdict import Estimate, Verdict


class Checkpoint(Record):
    """A Hugging Face directory. `weights` and `tokenizer` are SHA-256 hashes of content."""

    path: str
    weights: str
    tokenizer: str
    dtype: str
    parameters: int
    training_step: int | None = None

    @property
    def identity(self) -> str:
        """Sixteen digits that name the weights wherever they lie."""
        return self.weights[:16]


class StatedPolicy(Record):
    """A policy in memory without weights here: the name that it gives itself, and a hash of its
    tokenizer, where it has one.
    """

    policy: str
    tokenizer: str | None

    @property
    def weights(self) -> str:
        """A hash of its name, which stands for the weights that are not here."""
        return content_hash(["a policy without weights", self.policy], 64)

    @property
    def identity(self) -> str:
        """Sixteen digits, as of a checkpoint."""
        return self.weights[:16]


class StatedWorld(Record):
    """The world as `case.json` states it: `given` are the options it was built
    with, which may hold paths.
    """

    name: str
    options: dict[str, str]
    given: dict[str, str]
    channels: tuple[dict[str, Any], ...] = Field(description="each one a Channel")
    notes: Texts = ()


class TrainedTasks(Record):
    """The file that listed the tasks of the training: its path, a hint, how many lines it
    has, and a hash of them.
    """

    path: str
    lines: int
    content: str


class StatedInputs(Record):
    """What a case was started with. Paths are hints, hashes identify. `instruments`: those
    that measured, where they were chosen by name. `rule`: the file of a rule of one's own.
    """

    before: Checkpoint | StatedPolicy
    after: tuple[Checkpoint | StatedPolicy, ...]
    environment: StatedWorld
    budget: dict[str, Any] = Field(description="a Budget")
    seed: int
    training: dict[str, str] | None = None
    trained_tasks: TrainedTasks | None = None
    recipe: dict[str, str] | None = None
    instruments: tuple[str, ...] | None = None
    backend: str | None = None
    rule: str | None = None


class StatedLogs(Record):
    """What a case from logs alone was started with: for each side its log's
    path, a hint, and its hash.
    """

    logs: dict[str, dict[str, str]]
    reader: str | None
    seed: int
    rule: str | None = None


class CaseFile(VersionedRecord):
    """`case.json`. `provenance`: code, libraries, instruments with their
    settings, and content hashes. `files`, `checksum`: SHA-256 of what was written with it, and
    of all else that it says (`case_checksum`).
    """

    status: Literal["running", "complete"]
    verdict: Verdict | None
    inputs: StatedInputs | StatedLogs
    provenance: dict[str, Any]
    rule: dict[str, Any] | None = Field(default=None, description="a Rule of one's own")
    files: dict[str, str] | None = None
    checksum: str | None = None


class LoopRow(Record):
    """A row of `loops.jsonl`: a run that loops, and where. Steps count from 0; `actions`
    are the repeated ones, as they were written the first time (long ones cut), `turns`
    how many actions lie in the loop.
    """

    trajectory: str
    side: str
    task: str
    policy: str
    file: str | None = None
    first_step: int
    last_step: int
    turns: int
    times: int
    actions: Texts


class IntegrityRow(Record):
    """A row of `integrity.jsonl`: what cannot be relied on in the record of a run. `steps` count
    from 0; `quote`: a line of the log. No finding.
    """

    trajectory: str
    side: str
    task: str
    policy: str
    file: str | None = None
    check: str
    steps: tuple[int, ...]
    quote: str
    why: str


class AblationRow(Record):
    """A row of `ablation.jsonl`: one kind of action (or pair) that was refused
    to both policies.

    `before`, `before_without` and `after_without` are scores. `missing`: share
    of the runs that ended because every draw was refused. `contains_answer` is
    `None` where it cannot be told.
    """

    kind: str
    gain: Estimate
    gain_without: Estimate
    before: Estimate
    before_without: Estimate
    after_without: Estimate
    runs_through: bool
    contains_answer: bool | None
    q_value: float
    missing: float
    summary: str
