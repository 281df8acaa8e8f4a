"""Lenient extraction: what the failed runs of one side would score if the answer
in their last action were handed in as winning runs do, without what guessing adds.

1. A candidate of each failed run by fixed rules (`hand_in`). What was handed in
   already, or has the form of a hand-in, is none.
2. It is graded again (`regrade`), where the world can do so; else the run's
   earlier actions are taken again, then the candidate in the form of a hand-in.
3. The same with the candidate of another task: `guessed` is the share that this
   wins, and a candidate that adds s counts (s - guessed) / (1 - guessed), which is
   0 in the mean for one who guesses (formula scoring).
"""

from collections.abc import Sequence

import numpy as np

from forensics.errors import MissingInput, UserError
from forensics.phrases import percent
from forensics.protocols import Environment, Regrading
from forensics.records import Trajectory
from resampling.samplers.run_replay import RecordedRun
from resampling.sources.hand_in import Form, form_of

MOST_GUESSED = 0.9  # of the candidates: above it, guessing cannot be told from knowing
MOST_UNTOLD = 0.2  # of the candidates that could not be handed in


class Extraction:
    """The candidates of one side's failed runs, handed in. `gains`: by task,
    what they add to the score, without what guessing adds.
    """

    def __init__(
        self, environment: Environment, runs: Sequence[Trajectory], wins: Sequence[Trajectory]
    ) -> None:
        """`environment`: in which the runs were made. `wins`: whose form counts."""
        self._environment = environment
        self._known: dict[tuple[str, str], float | None] = {}
        self._form = form_of([last_action(run) for run in wins])
        self._submitted = self._submission_form(wins)
        if not (self._submitted or self._form).varies:
            raise MissingInput(
                "Nothing varies in what wins after training hand in, so there is no place for an"
                " answer.",
                "Give the environment a method `regrade(task, submission)`.",
            )
        found = [(run, text) for run in runs if (text := self._candidate(run)) is not None]
        self.candidates = len(found)
        added = [self._adds(run, text) for run, text in found]
        strange = [self._adds(run, _of_another(found, i)) for i, (run, _) in enumerate(found)]
        self._require_told([*added, *strange])
        self.guessed = float(np.mean([s or 0.0 for s in strange])) if strange else 0.0
        if self.guessed > MOST_GUESSED:
            raise MissingInput(
                f"{percent(self.guessed)} of the answers that were read out would be right on"
                " another task too.",
                "Give tasks with different answers.",
            )
        worth = {
            run.id: ((one or 0.0) - self.guessed) / (1 - self.guessed)
            for (run, _), one in zip(found, added, strict=True)
        }
        self.gains = by_task([(run.task, worth.get(run.id, 0.0)) for run in runs])

    def _submission_form(self, wins: Sequence[Trajectory]) -> Form | None:
        """Of what is graded again, where the world can do so."""
        texts = [run.submission for run in wins if run.submission]
        return form_of(texts) if isinstance(self._environment, Regrading) and texts else None

    def _candidate(self, run: Trajectory) -> str | None:
        """The answer in a failed run's last action, in the form of a hand-in;
        `None` where there is none that was not handed in already.
        """
        if won(run) or not run.turns:
            return None
        said, form = last_action(run), self._submitted or self._form
        if self._form.had_by(said):
            return None
        found = (self._form if self._form.varies else form).candidate(said)
        text = None if found is None else form.put(found)
        already = run.submission if self._submitted else said
        return None if text is None or text.split() == (already or "").split() else text

    def _adds(self, run: Trajectory, text: str) -> float | None:
        """What a hand-in would add to a run's score; `None` where it cannot be tried."""
        key = (run.task, text) if self._submitted else (run.id, text)
        if key not in self._known:
            self._known[key] = (
                self._regraded(run, text) if self._submitted else self._replayed(run, text)
            )
        score = self._known[key]
        return None if score is None else max(score - (run.outcome or 0.0), 0.0)

    def _regraded(self, run: Trajectory, text: str) -> float | None:
        assert isinstance(self._environment, Regrading)
        try:
            return self._environment.regrade(run.task, text).get("outcome")
        except UserError:
            raise
        except Exception:  # somebody else's grader: a broken grading is data, not a crash
            return None

    def _replayed(self, run: Trajectory, text: str) -> float | None:
        """The run's actions but for the last one taken again, then this one."""
        world = self._environment.spawn()
        recorded, (*earlier, _) = RecordedRun(run, None), run.actions
        try:
            recorded.begin(world)
            for number, _ in earlier:
                recorded.act(world, number)
            result = world.step(text)
        except Exception:  # it does not replay, or breaks on a text it had not seen
            return None
        return 0.0 if result.outcome is None else result.outcome

    def _require_told(self, added: Sequence[float | None]) -> None:
        untold = sum(one is None for one in added)
        if untold > MOST_UNTOLD * len(added):
            raise MissingInput(
                f"{percent(untold / len(added))} of the answers that were read out could not be"
                " handed in.",
                "See that the environment replays its runs, or give it a method `regrade`.",
            )


def _of_another(found: Sequence[tuple[Trajectory, str]], place: int) -> str:
    """A candidate of another task, half a turn away; raises `MissingInput` without one."""
    task, count = found[place][0].task, len(found)
    for step in range(count):
        run, text = found[(place + count // 2 + step) % count]
        if run.task != task:
            return text
    raise MissingInput(
        "All answers that were read out are of one task.", "Run more held-out tasks."
    )


def won(run: Trajectory) -> bool:
    return (run.outcome or 0.0) >= 0.5


def last_action(run: Trajectory) -> str:
    return run.actions[-1][1].text


def by_task(scores: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The mean of each task."""
    found: dict[str, list[float]] = {}
    for task, score in scores:
        found.setdefault(task, []).append(score)
    return {task: sum(values) / len(values) for task, values in found.items()}
