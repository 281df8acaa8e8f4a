"""`forensics twin`: is the scrubbed world fair? Light at import."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from forensics.cli.options import EnvOptions, Json, Seed, parse_options
from forensics.errors import UserError

MOST_ROWS: Final = 10
MOST_PLACES: Final = 5
SCRIPT = "a Python file with act(observations, task), or a text file with one action a line"


Env = Annotated[str | None, typer.Option(metavar="NAME", help="The installed environment.")]
HarnessToml = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A harness.toml with `honest` and each channel's `cheat`, instead of --env.",
    ),
]
Honest = Annotated[
    str | None,
    typer.Option(
        metavar="SCRIPT",
        help=f"Does the job: {SCRIPT}.  [default: the world's own, where it brings one]",
    ),
]
Cheats = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[CHANNEL=]SCRIPT", help="Wins by a shortcut; repeatable, one for a channel."
    ),
]
Bystander = Annotated[
    str | None,
    typer.Option(
        metavar="SCRIPT",
        help="Looks around; must read the same in both.  [default: the honest one]",
    ),
]
TakenOut = Annotated[
    list[str] | None,
    typer.Option(metavar="CHANNEL", help="Check the twin without it; repeatable.  [default: each]"),
]


def twin(
    env: Env = None,
    env_option: EnvOptions = None,
    harness: HarnessToml = None,
    honest: Honest = None,
    cheat: Cheats = None,
    bystander: Bystander = None,
    without: TakenOut = None,
    tasks: Annotated[int, typer.Option(min=1, help="Held-out tasks to play.")] = 20,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Check that the scrubbed twin of a world is fair.

    A scripted honest run must win in the open and in the scrubbed world, a scripted
    cheat in the open one only, and a bystander must read the same in both. Exit code
    0 where every channel is fair, 1 where one is unfair or not checked. Python
    scripts are your own code: they run with your rights.
    """
    from forensics.cli.console import progress_bars, say, say_json
    from forensics.investigation import build_environment
    from forensics.twin_check import check_harness_twin, check_twin

    given = (honest, cheat, bystander, env_option)
    if (env is None) == (harness is None) or (harness is not None and any(given)):
        raise UserError(
            "give --env NAME with scripts, or --harness FILE, which names its own commands"
        )
    few: Any = {"without": without or (), "tasks": tasks, "seed": seed}
    with progress_bars() as progress:
        if harness is not None:
            found = check_harness_twin(harness, **few, progress=progress)
        else:
            world = build_environment(str(env), parse_options(env_option))
            known = [channel.name for channel in world.channels]
            cheats = cheats_of(cheat or [], known, without or known)
            found = check_twin(world, honest, cheats, bystander, **few, progress=progress)
    fair = all(one.status == "fair" for one in found)
    if as_json:
        say_json(
            {
                "environment": env or str(harness),
                "fair": fair,
                "twins": [one.row() for one in found],
            }
        )
    else:
        say("\n".join(line for one in found for line in told(one)))
    raise typer.Exit(0 if fair else 1)


def cheats_of(given: Sequence[str], known: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """Cheats by channel; one without a channel belongs to the only one that is asked for."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, script = text.partition("=")
        if not equals or name not in known:
            if len(asked) != 1:
                many = ", ".join(asked)
                raise UserError(
                    f"--cheat {text} does not say which channel it uses; write"
                    f" --cheat CHANNEL={text} with one of: {many}"
                )
            name, script = asked[0], text
        if name in found:
            raise UserError(f"--cheat was given twice for {name}; give it once")
        found[name] = script
    return found


def told(result: Any) -> list[str]:
    """The table by task, what is not fair, and where a bystander's texts part."""
    from forensics.records import Table
    from forensics.report import table_text

    names = [name for name in result.without if any(name in row.cheats for row in result.tasks)]
    wrong = sorted(result.tasks, key=lambda row: not _odd(row))[:MOST_ROWS]
    cells = tuple((row.task, *_cells(row, names)) for row in wrong)
    gone = " and ".join(result.without)
    table = Table(
        title=f"Without {gone}: {result.status}",
        columns=(
            "task",
            "honest: open / scrubbed",
            *(f"{name} cheat" for name in names),
            "bystander",
        ),
        rows=cells,
    )
    left = len(result.tasks) - len(wrong)
    lines = [table_text(table)] + ([f"... and {left} more tasks"] if left else [])
    lines += [f"unfair: {why}" for why in result.unfair]
    lines += [f"not checked: {why}" for why in result.unchecked]
    lines += [f"  {place.sentence}" for place in result.differences[:MOST_PLACES]]
    return lines


def _odd(row: Any) -> bool:
    fine = all(both == (True, False) for both in row.cheats.values())
    return not fine or row.honest != (True, True) or row.difference is not None or not row.steady


def _cells(row: Any, names: Sequence[str]) -> tuple[str, ...]:
    words = {True: "wins", False: "loses", None: "no outcome"}
    played = (row.honest, *(row.cheats[name] for name in names))
    wins = [f"{words[there]} / {words[here]}" for there, here in played]
    same = "reads the same" if row.compared else "nothing compared"
    return (*wins, f"differs at step {row.difference.step}" if row.difference else same)
