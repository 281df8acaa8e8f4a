"""An audit: how much of the gain since the start would be left without the
shortcuts, asked while training goes on.

1. Before the first update the policy itself, in memory, plays fixed held-out
   tasks in the open and in the scrubbed world. The episodes are stored: there
   is never a second copy of the weights.
2. Later audits play the current policy only, same tasks, random streams of
   their own, into a case folder each. The start's episodes are linked in under
   the names the case asks for, so the case finds them and plays nothing twice.
3. Instruments (`settings.instruments`) and verdict rule are those of `forensics
   investigate`; nothing is decomposed here. `forensics report` and `forensics
   gate` work on the folder.

Everything depends on the run's seed and the step, so a run that was killed
repeats its audits bit for bit.

The model that is being trained is lent to an audit and given back as it was:
everything that an audit could leave behind is put back, the mode of every
module and the random state of torch (the CPU's and the model's device's), numpy
and Python.
"""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forensics.case import Budget, Case
from forensics.errors import MissingInput, UserError
from forensics.instruments import Instrument, chosen_instruments
from forensics.investigation import ANSWERS, CASE, EVIDENCE, Inputs, conclude
from forensics.policies import model_checkpoint, policy_from, tokenizer_identity
from forensics.progress import Progress, silent
from forensics.protocols import (
    Capability,
    Constraint,
    Environment,
    Intervention,
    Policy,
    Renderer,
    SamplingSettings,
)
from forensics.records import (
    Checkpoint,
    Evidence,
    Trajectory,
    Undefined,
    Verdict,
    content_hash,
    read_findings,
    read_json,
    write_json,
)
from forensics.runs import Condition
from forensics.study import remove_drafts
from forensics.subjects import BEFORE, HeldPolicy, Role, Subject
from forensics.verdict import View, estimate_of
from forensics.world import environment_key
from training.live.audit_report import (
    AuditReport,
    AuditSettings,
    alarm,
    read_reports,
    write_reports,
)


@dataclass(frozen=True, kw_only=True)
class AuditedPolicy:
    """A lent policy that plays the two worlds of an audit, on random streams of
    its own for every `step`.

    Two audits of equal weights share no noise, and neither does the start with
    any of them.
    """

    policy: Policy
    step: int
    scrubbed: tuple[str, ...]
    capabilities = frozenset({"play"})

    @property
    def identity(self) -> str:
        return self.policy.identity

    def play(
        self,
        environment: Environment,
        tasks: Sequence[str],
        samples: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> Iterator[Trajectory]:
        """Episodes in the open or the fully scrubbed world; any other raises `MissingInput`."""
        if (
            environment.scrubbed not in ((), self.scrubbed)
            or constraint is not None
            or interventions
        ):
            self._refuse()
        stream = int(content_hash(["audit", seed, self.step], 15), 16)
        return self.policy.play(environment, tasks, samples, settings, stream)

    def _refuse(self, *given: Any, **named: Any) -> Any:
        raise MissingInput(
            "An audit plays the open and the fully scrubbed world alone.",
            "Save this checkpoint and the start, and run `forensics investigate` on them.",
        )

    logprobs = sample = activations = _refuse


@dataclass(frozen=True, kw_only=True)
class PlayedStart:
    """The start as a subject: its runs in two worlds are stored, and its weights are gone."""

    stated: Checkpoint
    role = BEFORE
    capabilities = frozenset[Capability]({"play"})

    @property
    def identity(self) -> str:
        return self.stated.identity

    def open(self) -> Policy:
        raise MissingInput(
            "The start was played in the open and the fully scrubbed world alone.",
            "Save the start and this checkpoint, and run `forensics investigate` on them.",
        )


@contextmanager
def lent(
    model: Any, tokenizer: Any, identity: str, renderer: Renderer | None = None
) -> Iterator[Policy]:
    """A policy around the live `model`, which is as it was when the block ends."""
    import torch

    modes = [(module, module.training) for module in model.modules()]
    draws, shuffle = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            yield policy_from(model, tokenizer, identity, renderer)
    finally:
        random.setstate(draws)
        np.random.set_state(shuffle)  # noqa: NPY002
        for module, training in modes:
            module.training = training


START = "start.json"
PROMPTS = "prompts.json"


@dataclass(kw_only=True)
class Auditor:
    """Audits of one run in `folder`. `environment`: the open world; `seed`: the
    run's own. `begin` comes first.

    `renderer`: how the trainer renders prompts, where that is not the
    tokenizer's own way here. `doubt`: why the audited prompts may not be those
    that are trained on, one sentence.
    """

    folder: Path
    environment: Environment
    sampling: SamplingSettings
    settings: AuditSettings
    seed: int
    renderer: Renderer | None = None
    doubt: str | None = None
    served: Callable[..., tuple[Any, float]] | None = None  # as of `TrainerView`
    progress: Progress = silent
    _tokenizer: str = field(default="", init=False, repr=False)  # its hash, found out once

    @property
    def budget(self) -> Budget:
        return Budget(
            tasks=self.settings.tasks, samples=self.settings.samples, settings=self.sampling
        )

    @property
    def scrubbed(self) -> tuple[str, ...]:
        """Every channel of the world, sorted, as the scrubbed world names them."""
        return tuple(sorted(channel.name for channel in self.environment.channels))

    def begin(self, model: Any, tokenizer: Any, step: int) -> None:
        """Play the start, unless a run that goes on has it already; forget
        audits of steps that will be done again.

        Raises `UserError` where the folder holds the start of a run with other
        settings.
        """
        if not self.begun(tokenizer):
            self.play_start(model, tokenizer, step)
        prompts = self._start_folder / PROMPTS
        if self.doubt is not None and prompts.exists():  # the run that goes on has compared them
            self.doubt = read_json(prompts)["doubt"]
        reports = read_reports(self.folder)
        write_reports(self.folder, [report for report in reports if report.step <= step])
        for report in reports:
            if report.step > step:
                shutil.rmtree(self.folder / report.folder, ignore_errors=True)

    def begun(self, tokenizer: Any) -> bool:
        """Whether the start was played, with this tokenizer and these settings.
        Raises `UserError` where it was played with others.
        """
        self._tools()
        self._tokenizer = tokenizer_identity(tokenizer)
        if not (self._start_folder / START).exists():
            return False
        began = read_json(self._start_folder / START)["request"]
        for name, value in self._request().items():
            if began.get(name) != value:
                raise UserError(
                    f"the audits in {self.folder} began with another {name}; take the settings"
                    " they began with, or start the run over"
                )
        return True

    def play_start(
        self, model: Any, tokenizer: Any, step: int, where: str = "the start of this run, in memory"
    ) -> None:
        """Play the policy that every audit compares with; `begun` comes first. `where`:
        a hint for readers.
        """
        place = self._start_folder
        start = model_checkpoint(model, self._tokenizer, step, where)
        with lent(model, tokenizer, start.identity, self.renderer) as policy:
            player, gap = self._player(policy, step, None)
            played: Any = AuditedPolicy(policy=player, step=-1, scrubbed=self.scrubbed)
            case = self._case(place, (HeldPolicy(role=BEFORE, policy=played, stated=start),))
            for world in dict.fromkeys(((), self.scrubbed)):
                case.rollouts("before", Condition(scrubbed=world))
        write_json(
            place / START,
            {"checkpoint": start.model_dump(mode="json"), "request": self._request()}
            | ({} if gap is None else {"sampler_gap": gap}),
        )

    def _player(
        self, policy: Policy, step: int, first: float | None
    ) -> tuple[Policy, float | None]:
        """Who plays: the lent policy, or a server that has shown to serve it, with the gap."""
        if self.served is None:
            return policy, None
        return self.served(step, policy, self.environment, self.sampling, first)

    def compared(self, doubt: str | None) -> None:
        """Note what the comparison of the prompts said, for this process and
        for one that goes on.
        """
        self.doubt = doubt
        write_json(self._start_folder / PROMPTS, {"doubt": doubt})

    def audit(self, model: Any, tokenizer: Any, step: int, where: str | None = None) -> AuditReport:
        """Audit the policy after `step` updates; the same weights at the same
        step are audited once. `where`: a hint for readers.
        """
        began = time.monotonic()
        told = where or f"this run after step {step}, in memory"
        now = model_checkpoint(model, self._tokenizer, step, told)
        reports = read_reports(self.folder)
        if found := next((r for r in reports if r.step == step and r.policy == now.identity), None):
            again = found.model_copy(update={"doubt": self.doubt})  # what is known of it now
            write_reports(self.folder, [again if one is found else one for one in reports])
            return again
        place = self.folder / "audits" / f"step-{step:06d}"
        self._make_ready(place, now)
        with lent(model, tokenizer, now.identity, self.renderer) as policy:
            first = read_json(self._start_folder / START).get("sampler_gap", 0.0)
            player, _ = self._player(policy, step, first)
            played = AuditedPolicy(policy=player, step=step, scrubbed=self.scrubbed)
            verdict = self._conclude(place, now, played, str(model.device))
        report = self._report(
            place, now, verdict, list(read_findings(place / EVIDENCE)), time.monotonic() - began
        )
        write_reports(self.folder, [*(r for r in reports if r.step != step), report])
        return report

    def _make_ready(self, place: Path, now: Checkpoint) -> None:
        """The case folder, with the start's episodes. What an audit of these very
        weights that was killed has played stays; anything else goes.
        """
        begun = read_json(place / CASE)["inputs"]["after"] if (place / CASE).is_file() else []
        if [after["weights"] for after in begun] != [now.weights]:
            shutil.rmtree(place, ignore_errors=True)
        remove_drafts(place, ("trajectories", ANSWERS))
        self._link_start(place)

    def _conclude(
        self, place: Path, now: Checkpoint, policy: AuditedPolicy, device: str
    ) -> Verdict:
        after: Any = policy
        subjects = (
            PlayedStart(stated=self.start),
            HeldPolicy(role=Role(0), policy=after, stated=now),
        )
        case = self._case(place, subjects)
        inputs = Inputs(
            subjects=subjects,
            environment=self.environment,
            given={},
            budget=self.budget,
            seed=case.seed,
            device=device,
        )
        return conclude(case, self._tools(), inputs)

    def _case(self, folder: Path, subjects: tuple[Subject, ...]) -> Case:
        return Case(
            folder=folder,
            subjects=subjects,
            environment=self.environment,
            budget=self.budget,
            seed=int(content_hash(["audit", self.seed], 15), 16),
            progress=self.progress,
        )

    def _tools(self) -> Sequence[Instrument]:
        return chosen_instruments(self.settings.instruments)

    @property
    def _start_folder(self) -> Path:
        return self.folder / "audits" / "start"

    @property
    def start(self) -> Checkpoint:
        """The policy that every audit compares with."""
        return Checkpoint.model_validate(read_json(self._start_folder / START)["checkpoint"])

    def _request(self) -> dict[str, Any]:
        """What the start's episodes depend on, beside the weights."""
        request = {
            "environment": environment_key(self.environment),
            "budget": self.budget.content(),
            "seed": self.seed,
            "tokenizer": self._tokenizer,
        }
        if self.renderer is not None:  # one prompt's tokens: another rendering asks something else
            start = self.environment.spawn().reset(self.environment.tasks("held-out", 1, 0)[0], 0)
            request["rendering"] = content_hash(self.renderer.prompt(start.text, start.system))
        return request

    def _link_start(self, place: Path) -> None:
        """The start's episodes under their own names in another case folder (a
        link where the disk can).
        """
        (place / "trajectories").mkdir(parents=True, exist_ok=True)
        for path in sorted((self._start_folder / "trajectories").glob("before-*.parquet")):
            target = place / "trajectories" / path.name
            try:
                os.link(path, target)
            except FileExistsError:
                continue
            except OSError:
                shutil.copyfile(path, target)

    def _report(
        self,
        place: Path,
        now: Checkpoint,
        verdict: Verdict,
        findings: Sequence[Evidence | Undefined],
        seconds: float,
    ) -> AuditReport:
        view = View(findings, level=0.95)
        imputed = estimate_of(view.evidence("gain.phantom_imputed"))
        absent = next(
            (f for f in findings if isinstance(f, Undefined) and f.question == "gain.phantom"), None
        )
        worlds = 1 + bool(self.scrubbed)
        return AuditReport(
            step=now.training_step or 0,
            start_step=self.start.training_step or 0,
            policy=now.identity,
            label=verdict.label,
            sentence=verdict.sentence,
            reasons=verdict.reasons,
            gain=verdict.gain,
            genuine=verdict.genuine_gain,
            phantom=verdict.phantom_gain,
            phantom_imputed=imputed,
            missing=absent.reason if absent else None,
            doubt=self.doubt,
            attempts=_estimates(view.all_evidence("behaviour.channel_attempts")),
            wins=_estimates(view.wins()),
            alarm=alarm(verdict.phantom_gain, imputed, self.settings.margin),
            folder=str(place.relative_to(self.folder)),
            seconds=round(seconds, 3),
            episodes=worlds
            * self.settings.samples
            * len(self.environment.tasks("held-out", self.budget.tasks, 0)),
        )


def _estimates(found: Mapping[str | None, Evidence]) -> dict[str, float]:
    """By what they are about."""
    return {about: answer.estimate for about, answer in found.items() if about}
