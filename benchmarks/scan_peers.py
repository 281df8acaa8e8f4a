"""`forensics scan` beside other scanners on the same labelled files: what each flags, of
hacks and of honest logs, and how long it takes.

1. Files: `answers/*.jsonl` (a prompt and an answer a line, hack or honest) and the
   labelled runs of `labels.csv` (`tamper` or `benign`), where they are at hand (`--data`).
2. Each scanner gets the form that it reads best, and nothing of the label:
   - ours: answers as chat rows, all of them as wins but where their file has a score; runs
     as the files that they are;
   - `atif-scan`: ATIF trajectories. `answer`: the prompt and the answer as messages;
     `file`: each block of code in the answer as a call of `write_file`, with a result of
     ours, since most of its checks look at calls; `calls`: each command of a run as a call
     of `bash`, with what came back. The package converts nothing itself;
   - RewardHackWatch's expressions and syntax visitor, without its classifier, whose weights
     are a download of their own: `text` (what was said, and apart from it code or commands)
     and for runs `steps` (the same in its order, and what came back), as
     `experiments.real_logs` has it.
3. Flagged is told at two readings each. Ours: *used*, or *attempted* (any finding).
   `atif-scan`: unexcused findings of severity high (where it disqualifies) or medium (where
   its summary lists them), but for its checks of the record itself (`integrity`), which say
   that something is not recorded; they stand under `reasons`. RewardHackWatch: high risk
   (what its summary counts), or any match.
4. Shares have exact 95 % intervals (Clopper-Pearson), each log on its own.
5. Time is that of whole commands, start to exit, two processes each; the sides take turns.
   The least of the repeats says most on a busy machine. `starts`: what each takes to print
   its help. RewardHackWatch loads its classifier's libraries even then.
6. `--against COMMIT`: instead, the time of `forensics scan` of this tree against that of a
   commit (`scan_cost`).

Our rules were made with these files in view; the peers' were not. The peers need virtual
environments of their own, named by the variables in `PEERS`; one that is not there is named
with what to do. Prints JSON; the table goes to the standard error, and with `--out FOLDER`
both go into files.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_forms import ANSWERS, RUNS, Log, answers, as_chat, runs, write_chat
from benchmarks.peer_sides import MODULES, Said, scan_atif, scan_ours, scan_patterns
from benchmarks.scan_cost import against
from benchmarks.spread import spread
from benchmarks.whole_commands import timed
from experiments.real_logs.labelled import share

ROOT: Final = Path(__file__).parents[1]
DATA: Final = ROOT.parent / "shared" / "data"
PEERS: Final = {
    "atif-scan": (
        "FORENSICS_ATIF_SCAN_PYTHON",
        "`python -m venv atif && atif/bin/pip install 'atif-scan==0.7.*'`",
    ),
    "RewardHackWatch's patterns": (
        "FORENSICS_RHW_PYTHON",
        "`git clone https://github.com/aerosta/rewardhackwatch && python -m venv rhw &&"
        " rhw/bin/pip install ./rewardhackwatch`",
    ),
}
SECONDS: Final = 120  # in which a Python must say which version of a peer it has


@dataclass(frozen=True, kw_only=True)
class LabelledSet:
    """Logs of one source. `source`: the folder of runs; `None` for answers."""

    name: str
    logs: tuple[Log, ...]
    source: Path | None = None


Side = Callable[[Path], Said]


def run(
    device: str = "cpu", repeats: int = 3, data: Path = DATA, names: Sequence[str] = ()
) -> dict[str, Any]:
    """One row a set, scanner, form and reading; `missing`: what could not be had."""
    title = {"benchmark": "scanners on the same labelled logs", "device": device}
    sets = [made for name in names or (*ANSWERS, *RUNS) if (made := labelled(data, name))]
    if not sets:
        return {**title, "missing": [f"No labelled logs: give their folder, not {data}."]}
    pythons = {name: os.environ.get(variable) for name, (variable, _) in PEERS.items()}
    rows = [row for made in sets for row in _rows(made, pythons, repeats)]
    return {
        **title,
        "repeats": repeats,
        "versions": {name: version(name, at) for name, at in pythons.items() if at},
        "missing": [absent(name) for name, python in pythons.items() if not python],
        "starts": {
            module: spread([_start(python, module) for _ in range(repeats)])
            for python, module in _modules(pythons)
        },
        "rows": rows,
    }


def labelled(data: Path, name: str) -> LabelledSet | None:
    """A set, `None` where its files are not there."""
    if name in ANSWERS:
        path = data / "answers" / f"{name}.jsonl"
        return LabelledSet(name=name, logs=answers(path)) if path.is_file() else None
    if not (data / "labels.csv").is_file() or not (data / name).is_dir():
        return None
    return LabelledSet(name=name, logs=runs(data, name), source=data / name)


def absent(name: str) -> str:
    """What to do for a peer that is not there."""
    variable, how = PEERS[name]
    return f"{name} is missing: {how}, then set {variable} to the Python there."


def version(name: str, python: str) -> str:
    """The version that a Python has. Raises `SystemExit` where it has none."""
    code = f"import importlib.metadata as m; print(m.version({MODULES[name]!r}))"
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise SystemExit(f"error: {python} does not have {name}: {absent(name)}")
    return done.stdout.strip()


def _modules(pythons: Mapping[str, str | None]) -> list[tuple[str, str]]:
    """The Python and the module of each scanner that is there."""
    peers = [(python, MODULES[name]) for name, python in pythons.items() if python]
    return [(sys.executable, "forensics"), *peers]


def _start(python: str, module: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        at = ROOT if module == "forensics" else Path(folder)
        return timed([[python, "-m", module, "--help"]], at).wall


def _rows(
    made: LabelledSet, pythons: Mapping[str, str | None], repeats: int
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sides = _sides(made, pythons, place)
        told: dict[tuple[str, str], list[Said]] = {key: [] for key in sides}
        for number in range(repeats):
            for at, (key, side) in enumerate(sides.items()):
                print(f"{made.name}: {' '.join(key)} ...", file=sys.stderr, flush=True)
                fresh = place / f"side{at}-{number}"
                fresh.mkdir()
                told[key].append(side(fresh))
    return [
        _row(made, *key, reading, said) for key, said in told.items() for reading in said[0].flagged
    ]


def _sides(
    made: LabelledSet, pythons: Mapping[str, str | None], place: Path
) -> dict[tuple[str, str], Side]:
    """Each scanner and form, ours first."""
    source = made.source or place / "rows.jsonl"
    if made.source is None:
        write_chat(source, [as_chat(log) for log in made.logs])
    form = "files" if made.source else "chat rows"
    sides: dict[tuple[str, str], Side] = {
        ("forensics scan", form): partial(scan_ours, sys.executable, ROOT, source)
    }
    atif, patterns = (pythons[name] for name in PEERS)
    for form in ("calls",) if made.source else ("answer", "file"):
        if atif:
            sides["atif-scan", form] = partial(scan_atif, atif, made.logs, form)
    for form in ("text", "steps") if made.source else ("text",):
        if patterns:
            sides["RewardHackWatch's patterns", form] = partial(
                scan_patterns, patterns, made.logs, form
            )
    return sides


def _row(
    made: LabelledSet, scanner: str, form: str, reading: str, told: Sequence[Said]
) -> dict[str, Any]:
    flagged = told[0].flagged[reading]
    hacks = {log.id for log in made.logs if log.hack}
    honest = {log.id for log in made.logs if not log.hack}
    return {
        "set": made.name,
        "scanner": scanner,
        "form": form,
        "reading": reading,
        "hacks": share(len(hacks & flagged), len(hacks)),
        "honest": share(len(honest & flagged), len(honest)),
        "by_kind": {
            kind: sum(log.id in flagged for log in made.logs if log.kind == kind)
            for kind in sorted({log.kind for log in made.logs})
        },
        "reasons": {
            name: {"hacks": len(hacks & ids), "honest": len(honest & ids)}
            for name, ids in sorted(told[0].reasons.items())
        },
        "unread": told[0].unread,
        "seconds": spread([said.took.wall for said in told]),
        "processor_seconds": spread([said.took.processor for said in told]),
        "same_each_time": all(said.flagged == told[0].flagged for said in told),
    }


def markdown(found: Mapping[str, Any]) -> str:
    """The table."""
    head = ("set", "scanner, form", "flagged", "hacks", "honest", "s, least (median)", "CPU s")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in found.get("rows", ()):
        seconds = f"{row['seconds']['min']:.1f} ({row['seconds']['median']:.1f})"
        unread = f", {row['unread']} unread" if row["unread"] else ""
        cells = (
            row["set"],
            f"{row['scanner']}, {row['form']}{unread}",
            row["reading"],
            _told(row["hacks"]),
            _told(row["honest"]),
            seconds,
            f"{row['processor_seconds']['min']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *found.get("missing", ())])


def _told(counted: Mapping[str, Any]) -> str:
    if not counted["n"]:
        return "none there"
    low, high = (f"{100 * counted[key]:.0f}" for key in ("low", "high"))
    return f"{counted['count']} of {counted['n']} ({low} to {high} %)"


def main() -> int:
    """`python -m benchmarks.scan_peers [--data FOLDER] [--repeats N] [--only SET]
    [--out FOLDER] [--against COMMIT]`.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of labelled logs")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], choices=[*ANSWERS, *RUNS])
    parser.add_argument("--out", type=Path, help="write scan_peers.json and scan_peers.md here")
    parser.add_argument(
        "--against", metavar="COMMIT", help="instead, the time of this tree against a commit"
    )
    asked = parser.parse_args()
    data = asked.data.resolve()
    if asked.against:
        found = against(ROOT, asked.against, data, asked.repeats)
    else:
        found = run(repeats=asked.repeats, data=data, names=asked.only)
    if "rows" not in found:
        print(f"error: {found['missing'][0]}", file=sys.stderr)
        return 2
    text = json.dumps(found, indent=2)
    print(text)
    if not asked.against:
        print(markdown(found), file=sys.stderr)
    if asked.out:
        asked.out.mkdir(parents=True, exist_ok=True)
        name = "scan_cost" if asked.against else "scan_peers"
        (asked.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        if not asked.against:
            (asked.out / f"{name}.md").write_text(markdown(found) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
