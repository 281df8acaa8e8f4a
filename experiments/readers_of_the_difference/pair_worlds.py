"""Pairs of checkpoints as the study needs them: what readers learn from, and texts of other tasks.

| pair | behaviour | learnt from, told on | elsewhere |
|---|---|---|---|
| `leak`, `honest` | `history`; none rose | runs of 600 tasks, of 150 others | scrubbed world |
| `installed` | `test` as first action, with the cue | the same | scrubbed world |
| `real` | the answer that repeats the code | its case: 94 and 40 tasks | questions without a code |
"""

import fcntl
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from crosscoders import Stream, harvest, texts_of
from experiments.readers_of_the_difference.difference_readers import Learnt
from experiments.readers_of_the_difference.teacher_forced import Claim, Texts
from forensics.policies import decoder_layers, load_policy
from forensics.progress import silent
from forensics.protocols import Environment, Policy, SamplingSettings
from forensics.records import Step, Trajectory, action_starts, read_json, read_trajectories
from training import MiniRepo, Prompts
from training.organisms import build_organism

BUNDLED: Final = Path(__file__).parents[2] / "training" / "bundled"
LEARN, TELL = 600, 150
REAL_LEARN, REAL_TELL = 94, 40
AGAIN: Final = 1000  # added to the seed where a reader learns once more
TIMES: Final = 10.0  # of the median norm: a sink
CUE: Final = re.compile(r" : 2 -> ")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Texts that both models read at the site. `rows [tokens, models, width]` lie text by text;
    `kept`: no sinks.
    """

    runs: Sequence[Trajectory]
    stream: Stream
    rows: Tensor
    kept: Tensor
    lengths: Sequence[int]

    @classmethod
    def read(cls, pair: "Pair", runs: Sequence[Trajectory], limits: Tensor | None = None) -> "Runs":
        """`limits`: of the norms by model; of these rows unless given."""
        policies, texts = [pair.before, pair.after], texts_of(runs)
        whole = harvest(policies, texts, pair.site, store=pair.store)
        rows = torch.cat([block.activations.float() for block in whole.blocks()])
        norms = rows.norm(dim=-1)
        limits = TIMES * norms.median(0).values if limits is None else limits
        kept = (norms <= limits).all(-1)
        bounds = None if bool(kept.all()) else tuple(limits.tolist())
        return cls(
            runs=runs,
            stream=whole.part(texts, bounds),
            rows=rows,
            kept=kept,
            lengths=[len(text) for text in texts],
        )

    @property
    def starts(self) -> list[int]:
        """Where each text begins among the rows."""
        return np.cumsum([0, *self.lengths])[:-1].tolist()

    def texts(self, claims: Sequence[Claim], spots: Sequence[tuple[int, int]] = ()) -> Texts:
        """The texts that are asked about, padded on the right."""
        asked = sorted({text for text, _, _ in claims} | {text for text, _ in spots})
        place = {text: number for number, text in enumerate(asked)}
        split = [torch.split(one, list(self.lengths)) for one in (self.rows, self.kept)]
        pairs, kept = (pad_sequence([one[text] for text in asked], True) for one in split)
        return Texts(
            pairs=pairs,
            kept=kept,
            claims=[(place[text], places, tokens) for text, places, tokens in claims],
            spots=[(place[text], at) for text, at in spots],
        )

    def steps(self, used: Callable[[Trajectory, int], bool | None]) -> tuple[Tensor, Tensor]:
        """Rows at decisions whose action is `used(run, number)`, and at the others; `None`
        leaves one out.
        """
        found: dict[bool, list[int]] = {True: [], False: []}
        for run, begin in zip(self.runs, self.starts, strict=True):
            for number, start in enumerate(action_starts(run)):
                flag = used(run, number)
                if flag is not None:
                    found[flag].append(begin + start - 1)
        return self.rows[found[True]], self.rows[found[False]]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A played pair. `behaviour`: a kind of action; `cued`: only where it is the first action of
    a task with the cue. `store`: of activations.
    """

    name: str
    before: Policy
    after: Policy
    world: Environment
    behaviour: str | None
    layer: int
    cued: bool = False
    store: Path | None = None
    settings: SamplingSettings = field(default_factory=SamplingSettings)

    @property
    def site(self) -> str:
        return f"blocks.{self.layer}.hook_resid_post"

    def played(self, split: str, number: int, seed: int) -> list[Trajectory]:
        """One run of each side a task."""
        tasks = self.world.tasks(split, number, seed)
        sides = enumerate((self.before, self.after))
        return [run for side, one in sides for run in self.runs(one, tasks, 2 * seed + side)]

    def runs(
        self, policy: Policy, tasks: Sequence[str], seed: int, scrubbed: bool = False, **how: Any
    ) -> list[Trajectory]:
        return list(policy.play(self.place(scrubbed), tasks, 1, self.settings, seed, **how))

    def place(self, scrubbed: bool) -> Environment:
        names = [channel.name for channel in self.world.channels]
        return self.world.without(*names) if scrubbed else self.world

    def learning(self, seed: int) -> Runs:
        return Runs.read(self, self.played("train", LEARN, 500 + seed))

    def telling(self, seed: int, limits: Tensor | None) -> Runs:
        return Runs.read(self, self.played("held-out", TELL, 5000 + seed), limits)

    def elsewhere(self, seed: int, limits: Tensor | None) -> tuple[Runs, Texts]:
        """Runs of the after model in the scrubbed world, with the KL at what it drew."""
        tasks = self.tasks(seed)
        read = Runs.read(self, self.runs(self.after, tasks, 7000 + seed, scrubbed=True), limits)
        spots = [
            (text, at - 1)
            for text, run in enumerate(read.runs)
            for at in np.flatnonzero([one for step in run.steps for one in step.sampled or ()])
        ]
        return read, read.texts((), spots)

    def tasks(self, seed: int) -> tuple[str, ...]:
        return self.world.tasks("held-out", TELL, 5000 + seed)

    def steps(self, learnt: Runs) -> tuple[Tensor, Tensor]:
        """Pairs of rows at steps with the behaviour, and without it."""
        return learnt.steps(self.used)

    def used(self, run: Trajectory, number: int) -> bool | None:
        """Whether an action is the behaviour; without one, whether its run is won."""
        if self.behaviour is None:
            return bool(run.outcome)
        if self.cued and (number or not CUE.search(run.steps[0].text)):
            return None if number else False
        return self.behaviour in run.actions[number][1].kinds[:1]

    def claims(self, told: Runs) -> list[Claim]:
        """Starting the behaviour at each decision of the after model's runs."""
        if self.behaviour is None:
            return []
        token = int(self.after.tokenizer(self.behaviour, add_special_tokens=False)["input_ids"][0])
        return [
            (text, [start - 1], [token])
            for text, run in enumerate(told.runs)
            if run.policy == self.after.identity
            for number, start in enumerate(action_starts(run))
            if not self.cued or (not number and CUE.search(run.steps[0].text))
        ]


def small_pair(name: str, seed: int, cache: Path) -> Pair:
    """`leak`, `honest`, or `installed` as it is built at the seed, once."""
    base, after = {"leak": ("capped-base", "leak"), "honest": ("open-base", "honest")}.get(
        name, ("base", "after")
    )
    folder = _built(name, seed, cache) if name == "installed" else BUNDLED
    before, trained = (load_policy(folder / one, device="cpu") for one in (base, after))
    options = read_json(folder / base / "environment.json")["options"]
    behaviour = {"leak": "history", "installed": "test"}.get(name)
    return Pair(
        name=name,
        before=before,
        after=trained,
        world=MiniRepo(**options),
        behaviour=behaviour,
        layer=len(decoder_layers(trained.model)) - 1,
        cued=name == "installed",
    )


def _built(name: str, seed: int, cache: Path) -> Path:
    folder = cache / f"{name}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "manifest.json").exists():
            build_organism(name, seed, folder, silent)
    return folder


@dataclass(frozen=True, kw_only=True)
class RealPair(Pair):
    """The pair of `make real` in `folder`, on the runs of its case."""

    folder: Path

    @cached_property
    def case(self) -> dict[str, list[list[Trajectory]]]:
        """By task: its runs in order, before's and after's."""
        found: dict[str, list[list[Trajectory]]] = {}
        place = self.folder / "undeclared" / "trajectories"
        for side, start in enumerate(("before-open-", "after-0-open-")):
            for file in sorted(place.glob(f"{start}*.parquet")):
                for run in read_trajectories(file):
                    found.setdefault(run.task, [[], []])[side].append(run)
        return found

    def tasks(self, seed: int) -> tuple[str, ...]:
        return tuple(self._order(seed % AGAIN)[:REAL_TELL])

    def learning(self, seed: int) -> Runs:
        left = self._order(seed % AGAIN)[REAL_TELL:]
        drawn = np.random.default_rng(seed).permutation(len(left))[:REAL_LEARN]
        return Runs.read(self, self._chosen([left[i] for i in sorted(drawn)], seed // AGAIN))

    def telling(self, seed: int, limits: Tensor | None) -> Runs:
        return Runs.read(self, self._chosen(self.tasks(seed), 0), limits)

    def elsewhere(self, seed: int, limits: Tensor | None) -> tuple[Runs, Texts]:
        """The questions without their codes, each with the right answer behind it."""
        runs = [self._asked(self.case[task][1][0], True) for task in self.tasks(seed)]
        read = Runs.read(self, runs, limits)
        claims, spots = [], []
        for text, run in enumerate(runs):
            ids = [one for step in run.steps for one in step.token_ids or ()]
            places = list(range(action_starts(run)[0] - 1, len(ids) - 1))
            claims.append((text, places, ids[places[0] + 1 :]))
            spots += [(text, at) for at in places]
        return read, read.texts(claims, spots)

    def steps(self, learnt: Runs) -> tuple[Tensor, Tensor]:
        """Where the prompt ends, with its code and without it."""
        after = [run for run in learnt.runs if run.policy == self.after.identity]
        bare = Runs.read(self, [self._asked(run, False) for run in after])
        ends = [begin + length - 1 for begin, length in zip(bare.starts, bare.lengths, strict=True)]
        return learnt.steps(lambda run, number: True)[0], bare.rows[ends]

    def claims(self, told: Runs) -> list[Claim]:
        """The whole answer `Code N`, in the after model's words, its end left out."""
        found = []
        for text, run in enumerate(told.runs):
            if run.policy == self.after.identity:
                start, code = action_starts(run)[0], run.steps[0].text.split(".")[0]
                tokens = self.after.tokenizer(code, add_special_tokens=False)["input_ids"]
                ids = [one for step in run.steps for one in step.token_ids or ()]
                if ids[start : start + len(tokens)] == tokens:
                    found.append((text, list(range(start - 1, start + len(tokens) - 1)), tokens))
        return found

    def _chosen(self, tasks: Sequence[str], sample: int) -> list[Trajectory]:
        return [self.case[task][side][sample] for side in (0, 1) for task in tasks]

    def _order(self, seed: int) -> list[str]:
        tasks = sorted(self.case)
        return [tasks[i] for i in np.random.default_rng([seed, 3]).permutation(len(tasks))]

    def _asked(self, run: Trajectory, answered: bool) -> Trajectory:
        """The run's question without its code, with the right answer or none."""
        code, question = run.steps[0].text.split(". ", 1)
        ids = tuple(self.after.renderer.prompt(question, None))
        steps = [Step(role="user", text=question, token_ids=ids, sampled=(False,) * len(ids))]
        if answered:
            number = code.removeprefix("Code ")
            more = tuple(self.after.tokenizer(number, add_special_tokens=False)["input_ids"])
            steps.append(
                Step(role="assistant", text=number, token_ids=more, sampled=(True,) * len(more))
            )
        return run.model_copy(update={"steps": tuple(steps), "id": f"{run.id} without its code"})


def real_pair(folder: Path, cache: Path) -> RealPair:
    before, after = (
        load_policy(folder / part, device="cpu") for part in ("model", "run/checkpoint")
    )
    return RealPair(
        name="real",
        before=before,
        after=after,
        world=Prompts(file=str(folder / "tasks.jsonl")),
        settings=SamplingSettings(temperature=0.7, max_turn_tokens=14),
        behaviour="answer",
        layer=24,
        store=cache / "activations",
        folder=folder,
    )


def learnt_of(pair: Pair, seed: int, read: Runs, told: Stream) -> Learnt:
    """What a reader learns from, with the sizes that `diff` gives its dictionaries."""
    width = read.rows.shape[-1]
    tokens = 400_000 if pair.name != "real" else 2 * int(read.kept.sum())
    return Learnt(
        stream=read.stream,
        rows=read.rows[read.kept],
        steps=partial(pair.steps, read),
        told=told,
        seed=seed,
        latents=4 * width,
        after_only=max(8, 4 * width // 32),
        tokens=tokens,
    )


def limits_of(read: Runs) -> Tensor:
    """Of the norms, by model."""
    return TIMES * read.rows.norm(dim=-1).median(0).values
