"""Two models that are told apart by nothing but which half of the tasks stands behind them.

`unpaired_row`: one model; a row of the texts of one half stands as "before" beside a row of the
other half, drawn at random among those of the same token, role, kind of step and being deciding.
`retrained_row`: one base trained twice by one recipe, each time on tasks of another half; both then
read the same texts, as `diff` reads any pair.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from crosscoders import harvest, latent_table, texts_of
from crosscoders.activations.activation_store import StoredStream
from crosscoders.activations.outlier_positions import survey
from crosscoders.activations.texts import TokenizedText
from crosscoders.latents.stability import stability
from crosscoders.study.diff_files import DiffRequest
from crosscoders.study.findings import tested
from crosscoders.study.material import StudyStreams, parts
from crosscoders.study.pipeline import diff_material
from experiments.coming_back.rule_2.reported_again import (
    BUNDLED,
    NO_CAUSE,
    NOT_BACK,
    REPORTED,
    SETTINGS,
    TOGETHER,
    conditions,
    opened,
)
from experiments.coming_back.side_by_side import dictionaries
from forensics.budget import Budget
from forensics.policies import load_policy
from forensics.progress import silent
from forensics.records import content_hash
from training import MiniRepo, grpo, read_recipe

FEW: Final = 40_000  # tokens to train on
SITE: Final = "blocks.1.hook_resid_post"
BASE, WORLD = BUNDLED / "capped-base", {"world": "capped"}
STEPS: Final = 20  # of the recipe `leak`
SMALL: Final = Budget(tasks=120, samples=2, settings=SETTINGS)


def unpaired_row(number: int, cache: Path) -> dict[str, Any]:
    """How many latents each condition leaves of rows that do not belong together."""
    folder = cache / f"unpaired-{number}"
    policy, generator = load_policy(BASE, device="cpu"), np.random.default_rng(number)
    world = MiniRepo(**WORLD)
    tasks = world.tasks("held-out", 400, number)
    runs = policy.play(world, tasks, 3, SETTINGS, number)
    texts = texts_of(runs, sources={policy.identity: "after"})
    whole = harvest([policy], texts, SITE, store=folder / "activations")
    half = set(generator.permutation(tasks)[: len(tasks) // 2].tolist())
    before, after = (
        [one for one in texts if (one.note.task in half) is side] for side in (True, False)
    )
    learnt, judged = (
        unpaired(whole, *two, generator)
        for two in zip(parts(before, number), parts(after, number), strict=True)
    )
    first, *others = dictionaries(learnt, (number, number + 100, number + 200), FEW, None, number)
    table = latent_table(first, judged)
    again = stability(first, others, judged)
    streams = StudyStreams(
        learnt=learnt,
        reported=judged,
        chosen=learnt,
        outliers=survey(learnt),
        limits=None,
        small=True,
    )
    table = table.with_column("stability", again.share)
    both = [policy, policy]
    found = tested([first, *others], table, (), both, streams, (), folder, silent)
    own, back = table.specific("after").tolist(), again.share == 1
    return {
        NOT_BACK: sum(not back[one] for one in own),
        NO_CAUSE: sum(bool(back[one]) for one in own) - len(found.latents),
        REPORTED: len(found.latents),
        TOGETHER: len(found.together),
    }


def unpaired(
    whole: StoredStream,
    before: Sequence[TokenizedText],
    after: Sequence[TokenizedText],
    generator: np.random.Generator,
) -> StoredStream:
    """The rows of `after`, each beside one of `before` like it; a row without one is left out."""
    theirs, ours = whole.part(before), whole.part(after)
    free: dict[Hashable, list[torch.Tensor]] = defaultdict(list)
    for text, (values,) in zip(theirs.tokenized, theirs.values, strict=True):
        for key, row in zip(likeness(text), values, strict=True):
            free[key].append(row)
    for rows in free.values():
        generator.shuffle(rows)
    keys = [likeness(text) for text in ours.tokenized]
    partner = [torch.zeros_like(values) for (values,) in ours.values]
    kept = [np.zeros(len(one), bool) for one in keys]
    places = [(text, at) for text, one in enumerate(keys) for at in range(len(one))]
    for text, at in generator.permutation(places):
        if rows := free[keys[text][at]]:
            partner[text][at], kept[text][at] = rows.pop(), True
    return replace(
        ours,
        values=[(one, *own) for one, own in zip(partner, ours.values, strict=True)],
        chosen=[np.flatnonzero(one) for one in kept],
        models=2,
        identity=content_hash([theirs.identity, ours.identity, "unpaired"]),
    )


def likeness(text: TokenizedText) -> list[Hashable]:
    """By token, what its partner has to have as well."""
    steps = [text.note.steps[one] for one in text.step]
    known = zip(text.token_ids.tolist(), steps, text.deciding.tolist(), strict=True)
    return [(token, step.role, step.kinds, deciding) for token, step, deciding in known]


class HalfOfTasks:
    """A world with the tasks of one side of a division in two; the rest is passed through."""

    def __init__(self, world: MiniRepo, number: int, side: int) -> None:
        self.world, self.number, self.side = world, number, side

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        drawn = self.world.tasks(split, 4 * number + 64, seed)
        return tuple(one for one in drawn if self.holds(one))[:number]

    def holds(self, task: str) -> bool:
        """By what the task asks, not by its name."""
        asked = self.world.spawn().reset(task, 0).text
        return int(content_hash([self.number, asked])[:8], 16) % 2 == self.side


def retrained_row(number: int, cache: Path) -> dict[str, Any]:
    """How many latents each condition leaves of two trainings on disjoint halves."""
    folder = cache / f"retrained-{number}"
    before, after = (trained(number, side, folder / f"half-{side}") for side in (0, 1))
    request = DiffRequest(
        before=before,
        after=after,
        environment=MiniRepo(**WORLD),
        site=SITE,
        decisions=0,
        tokens=FEW,
        seed=number,
        controls=False,
        baselines=False,
        budget=SMALL,
        device="cpu",
    )
    material = opened(request, folder / "diff")
    found = diff_material(request, material, folder / "diff", silent)
    of = conditions(found, folder / "diff")
    counts = {name: len(of[name]) for name in (NOT_BACK, NO_CAUSE, REPORTED)}
    return {**counts, TOGETHER: len(found[TOGETHER])}


def trained(number: int, side: int, folder: Path) -> Path:
    """The base after the recipe's first steps on one half."""
    recipe = read_recipe(BUNDLED.parent / "recipes" / "leak.toml")
    short = recipe.grpo.model_copy(update={"steps": STEPS})
    recipe = recipe.model_copy(update={"grpo": short, "audit": None})
    policy = load_policy(BASE, device="cpu", dtype="float32")
    world = HalfOfTasks(MiniRepo(**WORLD), number, side)
    grpo(policy, world, recipe, 2 * number + side, folder)
    return folder / "checkpoint"
