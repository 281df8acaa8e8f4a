"""The command `ablate`. Light at import."""

from typing import Annotated, Any

import typer

from forensics.cli import After, Before, EnvOptions, PairWorld, Run, parse_options, study_command

Tasks = Annotated[
    int,
    typer.Option(
        "--tasks",
        min=2,
        help="Held-out tasks to run; all kinds together are refused on all, "
        "each by itself on at most 200.",
    ),
]
Samples = Annotated[
    int, typer.Option("--samples", help="Episodes for each task, checkpoint and refusal.")
]
LeaveOpen = Annotated[
    bool,
    typer.Option(
        "--leave-open",
        help="Leave the declared channels open. [default: scrubbed, as `investigate` does]",
    ),
]


@study_command
def ablate(
    before: Before,
    after: After,
    env: PairWorld = None,
    env_option: EnvOptions = None,
    tasks: Tasks = 600,
    samples: Samples = 4,
    leave_open: LeaveOpen = False,
    settings: Any = None,
    *,
    run: Run,
) -> None:
    """Which kind of action does the gain run through? Play both with it
    refused.

    Declared channels are scrubbed, so that what is left of the gain is asked
    about. Kinds that an honest solver needs, by the environment's word, are not
    refused.

    Writes ablation.jsonl into the case folder. `forensics investigate --resume`
    with the same options goes on from there to a verdict.
    """
    from forensics.budget import Budget
    from forensics.cli import progress_bars
    from forensics.investigation import ablation_rows
    from resampling.ablation.instrument import ablate_pair

    with progress_bars() as progress:
        findings = ablate_pair(
            before,
            list(after),
            env,
            environment_options=parse_options(env_option),
            budget=Budget(tasks=tasks, samples=samples, settings=settings),
            leave_open=leave_open,
            **run.arguments,
            progress=progress,
        )
    known: list[Any] = [f for f in findings if f.kind == "evidence"]
    missing: list[Any] = [f for f in findings if f.kind == "undefined"]
    shortcuts = sorted(
        f.about for f in known if f.question == "ablation.shortcut" and f.estimate == 1
    )
    answer = {
        "rows": list(ablation_rows(findings)),
        "shortcuts": shortcuts,
        "undefined": [
            {name: getattr(f, name) for name in ("question", "about", "reason", "cure")}
            for f in missing
        ],
    }
    # a sentence for each kind, then what could not be told and what is called a shortcut
    lines = [f.summary for f in known if f.question in _TOLD]
    lines += dict.fromkeys(f"not known: {f.reason} {f.cure}" for f in missing)
    lines += ["", f"Called a shortcut: {', '.join(shortcuts) or 'none'}."]
    run.say(answer, lines, "ablation.jsonl")


_TOLD = ("ablation.runs_through", "refusal.carried", "regrading.carried")
