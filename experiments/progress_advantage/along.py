"""Do log-ratios go with advantages better and better along a training run?

`python -m experiments.progress_advantage.along`

A run of the recipe of `leak` is looked at after some updates: on runs of the
policy that it began with, the summed log-ratio of every step is held against
Monte-Carlo advantages of the policy as it is then, and of the one at the start.
"""

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from experiments.progress_advantage.correlating import correlation
from experiments.progress_advantage.monte_carlo import Valued, usable, valued
from experiments.progress_advantage.organisms import CONTINUATIONS, VALUED_TASKS, told
from forensics import load_policy, policy_from
from forensics.protocols import SamplingSettings
from forensics.records.files import write_atomically, write_json
from probes import progress_advantage
from training import MiniRepo, checkpoint_path, grpo, read_recipe
from training.organisms import RECIPES

FOLDER: Final = Path(__file__).parent
MARKS: Final = (1, 5, 10, 20, 40)
SEED: Final = 7


@dataclass(frozen=True, kw_only=True)
class Looking:
    """A callback. `rows`: what was found at each mark. `start`: the policy at
    the start; `own`: its advantages.
    """

    start: Any
    own: list[Valued]
    rows: list[dict[str, Any]] = field(default_factory=list)

    def on_start(self, view: Any) -> None: ...

    def on_save(self, view: Any, path: Path) -> None: ...

    def on_end(self, view: Any) -> None: ...

    def on_step_end(self, view: Any, report: Any) -> None:
        if view.step in MARKS:
            # a live policy keeps the identity of the weights it began with, and would
            # pass for its own reference
            now = policy_from(
                deepcopy(view.policy.model), view.policy.tokenizer, f"after {view.step} updates"
            )
            self.rows.append({"updates": view.step, "success": report.success, **self.look(now)})

    def look(self, now: Any) -> dict[str, Any]:
        """Correlations of the steps' summed log-ratios with both policies' advantages."""
        runs = [one.run for one in self.own]
        ratios = np.array(
            [
                step.ratio_sum
                for run in progress_advantage(now, self.start, runs)
                for step in run.steps
            ]
        )
        tasks = [one.run.task for one in self.own for _ in one.advantages]
        return {
            name: told(lambda found=found: correlation(ratios, _advantages(found), tasks))
            for name, found in (
                ("its own", valued(runs, now, world(), CONTINUATIONS, SEED)),
                ("of the start", self.own),
            )
        }


def main() -> None:
    looking = begin()
    recipe = read_recipe(RECIPES / "leak.toml")
    policy = load_policy(checkpoint_path("bundled:capped-base"), device="cpu", dtype="float32")
    grpo(policy, world(), recipe.model_copy(update={"audit": None}), SEED, callbacks=[looking])
    write_json(FOLDER / "along.json", looking.rows)
    write_atomically(FOLDER / "along.md", markdown(looking.rows))
    print(markdown(looking.rows))


def begin() -> Looking:
    """Runs of the base, and its own advantages."""
    start = load_policy(checkpoint_path("bundled:capped-base"), device="cpu", dtype="float32")
    tasks = world().tasks("held-out", VALUED_TASKS, SEED)
    runs = [run for run in start.play(world(), tasks, 1, SamplingSettings(), SEED) if usable(run)]
    return Looking(start=start, own=valued(runs, start, world(), CONTINUATIONS, SEED + 1))


def world() -> MiniRepo:
    return MiniRepo(world="capped")


def markdown(rows: list[dict[str, Any]]) -> str:
    """One line a mark."""
    lines = [
        "# Log-ratios and advantages along a training run",
        "",
        (
            "Written by `python -m experiments.progress_advantage.along`. Correlation of steps'"
            " summed log-ratios with Monte-Carlo advantages; 95 % intervals over tasks."
        ),
        "",
        (
            "| updates | success while training | with the policy's own advantages | with those at"
            " the start |"
        ),
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['updates']} | {row['success']:.2f} | {_text(row['its own'])} |"
        f" {_text(row['of the start'])} |"
        for row in rows
    ]
    return "\n".join([*lines, ""])


def _text(found: dict[str, Any]) -> str:
    if "missing" in found:
        return "not measured"
    return f"{found['estimate']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _advantages(found: list[Valued]) -> np.ndarray:
    return np.concatenate([one.advantages for one in found])


if __name__ == "__main__":
    main()
