"""The verdict of `make real` with both sides behind loopback servers:
`python -m experiments.real_model.served --made out/real --out out/real-served`.

`--made`: a folder that `make real` (or `python -m experiments.real_model.leak`) has filled.
The same command as there, with `--before-server` and `--after-server`; both labels are printed.
"""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from experiments.real_model.leak import FILES, investigation
from forensics import load_policy
from forensics.records.files import read_json
from tests.resampling.completion_stub import serving


def main(
    made: Annotated[Path, typer.Option()] = Path("out/real"),
    out: Annotated[Path, typer.Option()] = Path("out/real-served"),
    case: Annotated[str, typer.Option()] = "undeclared",
    tasks: Annotated[int, typer.Option()] = 156,
) -> None:
    sides = made / "model", made / "run/checkpoint"
    before, after = (load_policy(one, device="cpu") for one in sides)
    with serving(before, "processed") as first, serving(after, "processed") as second:
        words = investigation(made / FILES[case], *sides)
        words += ["--before-server", first.url, "--after-server", second.url]
        words += ["--tasks", str(tasks), "--out", str(out)]
        words += ["--resume"] if (out / "case.json").exists() else []
        code = subprocess.run([sys.executable, "-m", "forensics", *words]).returncode
    if code == 0:
        folders = {"in process": made / case, "behind servers": out}
        for name, folder in folders.items():
            print(f"{name}: {read_json(folder / 'case.json')['verdict']['label']}")
    raise typer.Exit(code)


if __name__ == "__main__":
    typer.run(main)
