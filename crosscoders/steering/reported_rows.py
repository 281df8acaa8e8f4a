"""Conditions played on the reported tasks, each one row: the measure, and what else changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosscoders.activations.streams import TokenizedText
from crosscoders.steering.activation_edits import SIDES, other_side
from crosscoders.steering.evaluation import FOLDER, Condition, difference_of
from crosscoders.steering.experiment_arms import Run
from crosscoders.steering.steer_study import Tried, plain_estimate, row_of
from crosscoders.steering.text_cost import text_cost
from forensics.progress import Progress, part_of
from forensics.protocols import Environment
from forensics.records import content_hash, read_json, write_json
from forensics.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The reported tasks, the world of the side effects (`None` without one) with its tasks,
    and the harmless texts.
    """

    tasks: tuple[str, ...]
    elsewhere: Environment | None
    elsewhere_tasks: tuple[str, ...]
    texts: Sequence[TokenizedText]

    def row(self, run: Run, measure: str, number: int, of: int) -> dict[str, Any]:
        """A row of `steering.json`."""
        bench, condition, acting = run.bench, run.condition, run.condition.acting
        told = part_of(bench.progress, f"steering, {condition.role}", number, of)
        told("", 0, 1)
        first, second, third = (part_of(told, "", step, 3) for step in range(3))
        plain = {side: Condition(role="unsteered", acting=side) for side in SIDES}
        tried = Tried(
            condition=condition,
            split="report" if run.told else "dose",
            outcomes=replace(bench, progress=first).play(condition, self.tasks),
            base=bench.play(plain[acting], self.tasks),
            goal=bench.play(plain[other_side(acting)], self.tasks),
            subject=condition.dictionary,
        )
        return row_of(tried, measure) | {
            "set": run.set,
            "at": run.at,
            "success_effect": plain_estimate(_gained(tried)),
            "elsewhere": self._elsewhere(run, second),
            "kl": self._kl(run, third),
        }

    def _elsewhere(self, run: Run, progress: Progress) -> dict[str, Any] | None:
        """Success in the other world, and how it differs from the same policy unsteered."""
        world, condition = self.elsewhere, run.condition
        if world is None or condition.role == "random-direction":
            return None
        bench, tasks = replace(run.bench, environment=world), self.elsewhere_tasks
        plain = Condition(role="unsteered", acting=condition.acting)
        base = bench.play(plain, tasks)
        tried = Tried(
            condition=condition,
            split="elsewhere",
            outcomes=replace(bench, progress=progress).play(condition, tasks),
            base=base,
            goal=base,
        )
        row = row_of(tried, "success")
        return {name: row[name] for name in ("success", "effect", "handed_in", "n")}

    def _kl(self, run: Run, progress: Progress) -> dict[str, Any] | None:
        """The divergence on the harmless texts, from the folder where it is there."""
        bench, condition = run.bench, run.condition
        if not self.texts or condition.change is None:
            return None
        request = [condition.content(), bench.identity, bench.position.name]
        path = bench.folder / FOLDER / f"kl-{content_hash(request)}.json"
        if not path.exists():
            sides = bench.before, bench.after
            acting, other = sides if condition.acting == "before" else sides[::-1]
            limit = bench.limit(condition.acting)
            cost = text_cost(
                acting,
                other,
                self.texts,
                condition.change,
                site=bench.site,
                limit=limit,
                progress=progress,
            )
            write_json(path, cost)
        found: dict[str, Any] = read_json(path)
        return found


def _gained(tried: Tried) -> Estimate | None:
    return difference_of(tried.outcomes.of("success"), tried.base.of("success"))
