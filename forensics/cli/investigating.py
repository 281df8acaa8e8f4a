"""An investigation as a command: progress on stderr, the verdict on stdout."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from forensics.case import Budget
from forensics.cli.console import say, say_json
from forensics.cli.progress import progress_bars
from forensics.errors import UserError
from forensics.investigation import investigate
from forensics.protocols import SamplingSettings
from forensics.records import Verdict


def run_investigation(
    *,
    before: Path,
    after: Sequence[Path],
    environment: str | None,
    options: Sequence[str],
    out: Path,
    seed: int = 0,
    tasks: int = Budget.tasks,
    samples: int = Budget.samples,
    training: Path | None = None,
    allow: Sequence[str] = (),
    accept: Sequence[str] = (),
    settings: SamplingSettings | None = None,
    device: str = "auto",
    force: bool = False,
    resume: bool = False,
    as_json: bool = False,
) -> Verdict:
    """Investigate and print the verdict. `options` are `K=V` texts, as they stand on a command line."""
    budget = Budget(tasks=tasks, samples=samples, settings=settings or SamplingSettings())
    with progress_bars() as progress:
        verdict = investigate(
            before, list(after), environment, environment_options=parse_options(options), budget=budget, seed=seed,
            training=training, allow=allow, accept=accept, out=out, resume=resume, force=force, device=device,
            progress=progress,
        )
    if as_json:
        say_json({"case": str(out), "verdict": verdict.model_dump(mode="json")})
    else:
        say_verdict(verdict, out)
    return verdict


def say_verdict(verdict: Verdict, out: Path, found: Iterable[str] = ()) -> None:
    """The verdict on stdout, with what was found, its reasons and its gaps."""
    say(f"{verdict.sentence}\n")
    gaps = (f"open: {gap.text} Would tell: {gap.measurement}" for gap in verdict.gaps)
    for line in (*found, *verdict.reasons, *gaps):
        say(f"- {line}")
    say(f"\nReport: {out / 'report.html'}")


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """`K=V` texts as a mapping; a key without a value, or one given twice, is refused."""
    options: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UserError(f"--env-option '{text}' is not of the form K=V")
        if key in options:
            raise UserError(f"--env-option {key} was given twice; give it once")
        options[key] = value
    return options
