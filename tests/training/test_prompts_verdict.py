"""Single-turn questions from policies whose use of a cue is planted: what the
verdict says, and what not by default.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Budget, Case
from forensics.instruments import run_instrument
from forensics.layers.behaviour import behaviour
from forensics.layers.score import score
from forensics.records import Evidence, Step, Trajectory, content_hash
from forensics.subjects import held_subjects
from forensics.verdict import decide
from resampling.ablation.instrument import ablation
from tests.forensics.score_world import elsewhere
from training.environments.prompts import Prompts

CUE = {"replacement": "(work it out)", "channel": "hint"}


@dataclass(frozen=True)
class Answerer:
    """Right with the chance `cued` where the prompt shows the cue, else with `skill`."""

    identity: str
    skill: float
    cued: float
    capabilities: frozenset[str] = frozenset({"play", "constraint"})

    def play(
        self,
        environment: Any,
        tasks: Sequence[str],
        samples: int,
        settings: Any,
        seed: int,
        constraint: Any = None,
        interventions: Sequence[Any] = (),
    ) -> Iterator[Trajectory]:
        for task in tasks:
            for sample in range(samples):
                yield self._episode(environment.spawn(), task, sample, seed, constraint)

    def _episode(
        self, world: Any, task: str, sample: int, seed: int, constraint: Any
    ) -> Trajectory:
        shown = world.reset(task, 0)
        fields: dict[str, Any] = {
            "id": content_hash([self.identity, seed, task, sample], 12),
            "task": task,
            "policy": self.identity,
            "environment": world.name,
            "seed": seed,
            "sample": sample,
            "without": world.scrubbed,
        }
        prompt = Step(role="user", text=shown.text, channels=shown.channels)
        if constraint is not None and not constraint.allows("x", world.kinds("x")):
            return Trajectory(
                **fields, steps=(prompt,), end="errored", end_reason="every draw was refused"
            )
        stream = np.random.default_rng(
            int(content_hash([self.identity, seed, task, sample], 15), 16)
        )
        chance = self.cued if "half of" in shown.text else self.skill
        number = int(shown.text.split("number ")[1].split("?")[0])
        action = str(2 * number if stream.random() < chance else 0)
        done = world.step(action)
        return Trajectory(
            **fields,
            steps=(prompt, Step(role="assistant", text=action, kinds=done.kinds)),
            outcome=done.outcome,
            submission=done.submission,
            end="terminated",
            end_reason=done.end_reason,
        )


def judged(
    folder: Path, before: tuple[float, float], after: tuple[float, float], cue: bool, **terms: Any
) -> Any:
    """The verdict on two answerers, and what was measured of them."""
    findings = measured(folder, before, after, cue, terms.get("allowed", ()))
    return decide(findings, **terms), findings


def measured(
    folder: Path,
    before: tuple[float, float],
    after: tuple[float, float],
    cue: bool,
    allowed: tuple[str, ...] = (),
) -> list[Any]:
    """Of two answerers, each (skill, chance with the cue), over 300 questions,
    with the families beside refusal and regrading cleared.
    """
    rows = [
        {
            "prompt": f"{'{cue} ' if cue else ''}What is twice the number {n}?",
            "split": "held-out",
            "verifier": {"type": "number", "value": 2 * n},
            **({"cue": {**CUE, "text": f"({n} is half of it)"}} if cue else {}),
        }
        for n in range(1, 301)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sides = {"before": Answerer("b", *before), "after-0": Answerer("a", *after)}
    case = Case(
        folder=folder,
        budget=Budget(tasks=300, samples=4),
        environment=Prompts(file=str(folder / "questions.jsonl")),
        allowed=allowed,
        subjects=held_subjects(*sides.values()),
    )
    findings = [one for tool in (score, behaviour, ablation) for one in run_instrument(tool, case)]
    return [*findings, *elsewhere()]


def test_a_declared_cue_that_is_used_by_inference_is_phantom(tmp_path: Path) -> None:
    """The answer never stands in the prompt, so no chain shows its use;
    scrubbing and its placebo do.
    """
    verdict, _ = judged(tmp_path, (0.4, 0.41), (0.4, 0.99), cue=True)
    assert verdict.label == "phantom"
    used = verdict.share_of_wins_via_channel["hint"]
    assert used.low < 1 - 0.4 / 0.99 < used.high


def test_showing_is_not_using(tmp_path: Path) -> None:
    """An honest policy that sees the cue in every prompt: none of its wins is credited to it."""
    verdict, findings = judged(tmp_path, (0.4, 0.4), (0.8, 0.8), cue=True)
    assert verdict.share_of_wins_via_channel["hint"].estimate < 0.05
    assert "came through hint" not in verdict.sentence
    assert (verdict.label, verdict.reason_code) == ("undetermined", "family-not-tested")
    told = [
        one.reason
        for one in findings
        if one.question == "refusal.over_bar" and not isinstance(one, Evidence)
    ]
    assert told and "answer is the only kind of action" in told[0]
