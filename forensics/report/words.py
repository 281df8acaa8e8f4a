"""What a report says in its own words, the same in every format: the label, the facts, what is missing, the replay."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from forensics.records import Undefined, Verdict
from forensics.report.data import ReportData
from forensics.report.examples import Example, Pick
from forensics.report.logs import Tally
from forensics.report.numbers import joined, percent, title_of
from forensics.wording import plural

MEANING: Final = {
    "genuine": "The gain stays when the known shortcuts are taken away.",
    "mixed": "A genuine part and a phantom part are both there.",
    "phantom": "The gain goes away when the known shortcuts are taken away.",
    "degenerate": "The policy fell into an echo trap or collapsed, so its score does not speak for its skill.",
    "regression": "The score fell.",
    "noise": "No gain can be told from chance.",
    "undetermined": "What was measured does not settle it.",
}
LOGS_ALONE: Final = "Read from logs alone: bounds and a stated assumption take the place of a run in a scrubbed world."
PARTS: Final = (  # field of the verdict, name, question that would answer it
    ("gain", "Gain", "gain.total"),
    ("genuine_gain", "Genuine part", "gain.genuine"),
    ("phantom_gain", "Phantom part", "gain.phantom"),
)
KINDS: Final = {
    "shortcut": "Win through {channel}", "untold": "Win that cannot be told", "win": "Win without a shortcut",
    "loss": "Loss", "unscored": "Without a score",
}


def headline(verdict: Verdict) -> tuple[str, str]:
    """The label as a heading and the verdict's sentence without the words that the heading already says."""
    opening = f"Verdict: {verdict.label.upper()}."
    rest = verdict.sentence.removeprefix(opening).strip()
    return verdict.label.capitalize(), rest or verdict.sentence


def facts(data: ReportData) -> Iterator[str]:
    """What the verdict rests on, in a few words each."""
    budget, world = data.inputs.get("budget"), data.inputs.get("environment")
    yield "Both worlds were run again" if data.verdict.basis == "re-run" else "From logs alone"
    if isinstance(world, Mapping) and world.get("name"):
        yield f"World: {world['name']}"
    scrubbed = max((world for _, world in data.browser.totals), key=len, default=())
    yield f"Scrubbed: {joined(scrubbed, 'nothing')}"
    if isinstance(budget, Mapping) and isinstance(budget.get("tasks"), int):
        tasks, samples = data.provenance.get("tasks"), budget.get("samples")
        each = f", {plural(samples, 'run')} each" if isinstance(samples, int) else ""
        yield plural(tasks if isinstance(tasks, int) else budget["tasks"], "task") + each
    if data.seeds:
        yield plural(data.seeds, "training seed") + (": training noise not measured" if data.seeds == 1 else "")


def not_measured(data: ReportData) -> Iterator[tuple[str, str]]:
    """The parts of the verdict that are missing: which one, and why."""
    for field, name, question in PARTS:
        if getattr(data.verdict, field) is None:
            yield name, _why(data, question)


def _why(data: ReportData, question: str) -> str:
    for finding in data.findings:
        if finding.question == question:
            return finding.reason if isinstance(finding, Undefined) else "Its interval was not measured."
    return f"No instrument answered `{question}`."


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Questions that have no answer for one and the same reason."""

    layer: str
    questions: tuple[str, ...]
    reason: str
    cure: str


def missing(data: ReportData) -> tuple[Missing, ...]:
    """Every question without an answer, those with one reason together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for gap in data.undefined:
        name = title_of(gap.question) + (f" ({gap.about})" if gap.about else "")
        groups.setdefault((gap.layer, gap.reason, gap.cure), []).append(name)
    return tuple(
        Missing(layer=layer, reason=reason, cure=cure, questions=tuple(names))
        for (layer, reason, cure), names in groups.items()
    )


def kind_of(pick: Pick) -> str:
    return KINDS[pick.kind].format(channel=pick.channel)


def kinds_of(data: ReportData) -> Iterator[tuple[str, int]]:
    """How many runs after training are of each kind; without chains a win is only a win."""
    words = {**KINDS, "shortcut": "wins through a channel", "untold": "wins that cannot be told", "loss": "losses",
             "win": "wins without a shortcut", "unscored": "without a score"}
    if not data.chains.read:
        words["win"] = "wins, not checked for shortcuts"
    for kind, word in words.items():
        if count := data.browser.kinds.get(kind):
            yield word, count


def outcome_of(example: Example | Any) -> str:
    """How a run came out, and how it ended."""
    run = example.run
    scored = {True: "won", False: "lost", None: "no score"}[run.won]
    score = f" with {run.outcome:g}" if run.outcome not in (0.0, 1.0, None) else ""
    reason = f": {run.end_reason}" if run.end_reason else ""
    return f"{scored}{score}, {run.end}{reason}"


def world_name(world: tuple[str, ...]) -> str:
    return f"without {joined(world, '')}" if world else "open world"


def wins_of(tally: Tally) -> str:
    """`238 of 240 runs won (99.2 %)`; the share is of the runs with a score."""
    left = tally.runs - tally.scored
    share = f" ({percent(tally.wins / tally.scored)})" if tally.scored else ""
    return f"{tally.wins:,} of {plural(tally.scored, 'scored run')} won{share}" + (
        f", {plural(left, 'run')} without a score" if left else ""
    )


def replay_command(inputs: Mapping[str, Any]) -> str | None:
    """The command that makes the case again, `None` where the inputs are not those of an investigation."""
    try:
        words = ["--before", inputs["before"]["path"]]
        words += [word for after in inputs["after"] for word in ("--after", after["path"])]
        words += ["--env", inputs["environment"]["name"]]
        options = inputs["environment"].get("options") or {}
        words += [word for key, value in options.items() for word in ("--env-option", f"{key}={value}")]
        budget = {key: value for key, value in inputs["budget"].items() if key != "settings"}
        for key, value in {"seed": inputs["seed"], **budget, **inputs["budget"]["settings"]}.items():
            words += [f"--{key.replace('_', '-')}", f"{value}"]
    except (KeyError, TypeError, AttributeError):
        return None
    quoted = [shlex.quote(str(word)) for word in [*words, "--out", "replay"]]
    pairs = [" ".join(pair) for pair in zip(quoted[::2], quoted[1::2], strict=True)]
    return " \\\n  ".join(["forensics investigate", *pairs])


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested values as rows of a dotted name and a text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from flat(inner, f"{name}.{number}")
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, "none" if value is None else str(value)
