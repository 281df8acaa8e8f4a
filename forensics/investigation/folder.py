"""The case folder: its files, and what it was started with.

`case.json` is written before anything is measured, so that a run that was
killed can be continued, and only with the same inputs. Identities are compared,
never paths: a checkpoint may have moved.
"""

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from forensics.errors import UserError
from forensics.records import Verdict
from forensics.records.case_checksum import CASE as CASE, hashes_of, sealed
from forensics.records.case_file import StatedPolicy
from forensics.records.files import read_json, write_json
from forensics.records.record import SCHEMA_VERSION
from forensics.study import Folder, require_same

Location = str | PathLike[str]
EVIDENCE = "evidence.jsonl"
FINDINGS = "findings.jsonl"
LOOKS = "looks.jsonl"  # of each run of logs, what could be looked at
LOOPS = "loops.jsonl"  # the runs of logs that loop, and where
INTEGRITY = "integrity.jsonl"  # what cannot be relied on in the record of each run
ABLATION = "ablation.jsonl"
ANSWERS = "answers"  # what finished instruments answered, kept until the case is complete
UNREADABLE = "unreadable.jsonl"  # files and rows of logs that could not be read
# whose checksums a complete case states; `ablate` writes its rows beside a complete one, too
CHECKED = (EVIDENCE, FINDINGS, LOOKS, LOOPS, INTEGRITY, UNREADABLE)
CASE_FILES = (
    CASE,
    EVIDENCE,
    FINDINGS,
    LOOKS,
    LOOPS,
    INTEGRITY,
    "candidates.jsonl",  # of older cases
    ABLATION,
    UNREADABLE,
    "report.html",
    "report.md",
    "report.txt",
    "report.json",
    "atif",
    "resampled",
    "placebo-training",
    "trajectories",
    "scores",
    ANSWERS,
    "figures",
)


def started_case(folder: Folder) -> dict[str, Any] | None:
    """What `case.json` says of a case that is gone on with; `None` where none was begun."""
    if not folder.resume or not (folder.path / CASE).is_file():
        return None
    content = read_json(folder.path / CASE)
    if not isinstance(content, dict) or not isinstance(content.get("inputs"), dict):
        raise UserError(
            f"{folder.path / CASE} does not say what the case was started with, so it cannot be"
            " gone on with; start it over with --force"
        )
    return content


def write_case(folder: Path, content: Mapping[str, Any], *, complete: bool = False) -> None:
    """Write `case.json` with its checksum, and of a complete case those of its files."""
    write_json(folder / CASE, sealed(content, hashes_of(folder, CHECKED) if complete else {}))


def begin_case(
    folder: Path, inputs: Mapping[str, Any], provenance: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Write what a case is started with, before anything is measured; returns it."""
    written = {
        "schema_version": SCHEMA_VERSION,
        "status": "running",
        "verdict": None,
        "inputs": dict(inputs),
        "provenance": dict(provenance),
        **more,
    }
    write_case(folder, written)
    return written


def complete_case(folder: Path, content: Mapping[str, Any], verdict: Verdict) -> None:
    """Write the verdict into the `case.json` of a case whose files are written."""
    said = {**content, "status": "complete", "verdict": verdict.model_dump(mode="json")}
    write_case(folder, said, complete=True)


def require_same_case(folder: Folder, now: Mapping[str, Any]) -> None:
    """Refuse to mix two cases in one folder; the sentence names what differs."""
    if (started := started_case(folder)) is not None:
        require_same(folder.path, case_identities(started["inputs"]), case_identities(now))


def case_identities(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a case this case, by the words in which a difference is told."""
    if isinstance(runs := inputs.get("runs"), Mapping):  # of a case of logs
        hashes = {f"the log of {place}": log["hash"] for place, log in runs.items()}
        return {**hashes, "seed": inputs.get("seed")}
    try:
        checkpoints = {"the before checkpoint": inputs["before"]}
        checkpoints |= {
            f"the after checkpoint number {i + 1}": after for i, after in enumerate(inputs["after"])
        }
        budget = dict(inputs["budget"])
        settings = budget.pop("settings")
        given = {
            "the backend": inputs.get("backend"),
            "the training record": inputs.get("training", {}).get("record"),
            "the trained tasks": inputs.get("trained_tasks", {}).get("content"),
            "the recipe": inputs.get("recipe", {}).get("content"),
        }
        return {
            **{what: _identity(value) for what, value in checkpoints.items()},
            "the environment": inputs["environment"]["name"],
            "the environment options": inputs["environment"]["options"],
            "seed": inputs["seed"],
            **{what: value for what, value in given.items() if value is not None},
            **{f"a budget of {name}": value for name, value in budget.items()},
            **{
                f"a sampling {name.replace('_', ' ')} of": value for name, value in settings.items()
            },
        }
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(
            "this case was started by another command or another version, so it cannot be gone on"
            " with; start it over with --force, or choose another --out"
        ) from None


def _identity(stated: Mapping[str, Any]) -> list[str]:
    if "policy" in stated:
        policy = StatedPolicy.model_validate(stated)
        return [policy.weights, policy.tokenizer or "none"]
    return [stated["weights"], stated["tokenizer"]]


def rule_file(rule: Any) -> str | None:
    """Where a rule lies that was given as a file; a hint, as all paths are."""
    return fspath(rule) if isinstance(rule, str | PathLike) else None
