"""Forensics in TRL's `GRPOTrainer` (1.16): audits and a training record, in
three lines of a user's script.

    from training.live import ForensicsForTRL
    forensics = ForensicsForTRL("prompts", file="questions.jsonl", out="forensics")
    forensics.attach(trainer)

1. As a `TrainerCallback` it audits through `ForensicsCallback`: the same hooks,
   folders and reactions as in our own trainer, with the sampling settings of
   the trainer's arguments. This uses public interfaces alone.
2. `attach` also records every generation completely, by wrapping two methods of
   the trainer whose signatures are checked first (`CompleteRecord`). Without it
   (`callbacks=[forensics]`) there are audits and no record.

Weights that are sharded over processes (FSDP, ZeRO-3) cannot be played by one
of them: pass `audits=False` for the record alone, and audit saved checkpoints with
`forensics watch`. Under plain data parallelism the first process audits and takes down
the rows of all, while the others wait.

The record of TRL's generations is what `GRPOTrainer` sampled, how it was rewarded and which
advantage it gave. TRL 1.16 has no public hook that sees a generation together with its
advantages. Two methods of the trainer do, and are wrapped on the instance:
`_calculate_rewards` (the exact token ids and every reward) and
`_generate_and_score_completions` (masks, advantages, log-probabilities). Their signatures, and
what they give back, are held against what is known here, so that a changed TRL is refused
instead of recorded wrongly.

What TRL itself does not compute is absent and named in `run.json`: with
generation by transformers there are no sampler log-probabilities, and with
aligned steps no old ones (TRL takes those of the update itself).
"""

import inspect
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, compress, takewhile
from pathlib import Path
from typing import Any, NoReturn

from transformers.trainer_callback import TrainerCallback

from forensics.errors import UserError
from forensics.investigation import build_environment
from forensics.policies import model_checkpoint, tokenizer_identity
from forensics.protocols import Environment, Renderer, SamplingSettings
from forensics.readers import outcome_of
from forensics.records import RECORD_FOLDER as FOLDER, TrainingRow, TrainingRun, content_hash
from forensics.version import code_version
from training.distributed import joined
from training.live.audit_report import LINES, AuditSettings
from training.live.callback import WATCH, ForensicsCallback, TrainerView
from training.live.trl_prompts import (
    UNSEEN,
    Seen,
    TrlRenderer,
    difference,
    renderer_of,
    some_prompts,
)
from training.recipe import ServerSection
from training.recorder import Recorder
from training.sections import parse_as

KNOWN = "1.16"
SIGNATURES = {
    "_generate_and_score_completions": ("inputs",),
    "_calculate_rewards": ("inputs", "prompts", "completions", "completion_ids_list"),
}
GIVEN_BACK = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
SOMETIMES = {  # given back where TRL computes it, and the record's name for it
    "tool_mask": "",
    "sampling_per_token_logps": "sampler_logprobs",
    "old_per_token_logps": "old_logprobs",
    "ref_per_token_logps": "reference_logprobs",
}
COMPLETE_GAPS = (
    "sampler log-probabilities: only where vLLM generates",
    (
        "old log-probabilities: only where TRL computes them (steps that are not aligned with"
        " generation, or vLLM)"
    ),
    "entropies: TRL computes them in the update, after the record",
    "dropped groups: TRL trains on dead groups with advantage 0 instead of dropping them",
)
# what the run's arguments say: of the estimator, and beside it
ESTIMATOR = """\
loss_type scale_rewards beta epsilon epsilon_high delta num_generations num_iterations
steps_per_generation importance_sampling_level mask_truncated_completions top_entropy_quantile
multi_objective_aggregation reward_weights
"""
RECIPE = """\
learning_rate weight_decay max_grad_norm max_steps num_train_epochs per_device_train_batch_size
gradient_accumulation_steps temperature top_p top_k max_completion_length use_vllm bf16
"""


@dataclass
class GenerationLog:
    """Rows by optimizer step, until they are written. `attached`: whether a trainer fills it.
    `first`: the prompts of this process's first batch, with their token ids.
    """

    outcome: str | None = None
    attached: bool = False
    samples: int = 1
    first: tuple[Seen, ...] = ()
    _model: Any = None
    _state: Any = None
    _rows: dict[int, list[TrainingRow]] = field(default_factory=dict)
    _batches: dict[int, int] = field(default_factory=dict)

    @property
    def training(self) -> bool:
        """Whether the trainer trains now; an evaluation's generations are not
        part of the record.
        """
        return self._model is not None and bool(self._model.training)

    @property
    def step(self) -> int:
        return int(self._state.global_step)

    def begin(self, model: Any, state: Any, samples: int) -> None:
        self._model, self._state, self.samples = model, state, samples

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows of one batch of generations, each with its prompt; batches of a
        step are counted, so that group ids are unique.
        """
        step = self.step
        number = self._batches[step] = self._batches.get(step, -1) + 1
        if not self.first:
            pairs = [zip(row["token_ids"], row["sampled"], strict=True) for row in rows]
            asked = [takewhile(lambda pair: not pair[1], row) for row in pairs]
            self.first = tuple(
                (row["prompt"], tuple(token for token, _ in ids))
                for row, ids in zip(rows, asked, strict=True)
            )
        for place, row in enumerate(rows, start=joined().rank * len(rows)):
            group, sample = f"{step}-{number}-{place // self.samples}", place % self.samples
            task, named = content_hash(row["prompt"]), row["rewards"]
            self._rows.setdefault(step, []).append(
                TrainingRow(
                    step=step,
                    group=group,
                    sample=sample,
                    task=task,
                    trajectory=content_hash([task, group, sample]),
                    policy_step_first=step,
                    policy_step_last=step,
                    outcome=named.get(self.outcome) if self.outcome else outcome_of(named),
                    **{name: value for name, value in row.items() if name != "prompt"},
                )
            )

    def take(self, before: int) -> dict[int, list[TrainingRow]]:
        """The rows of steps before `before`, which are forgotten here: those of every
        process on the first one, nothing on the others.
        """
        process, taken = joined(), {}
        for step in [step for step in sorted(self._rows) if step < before]:
            taken[step] = list(chain.from_iterable(process.to_first(self._rows.pop(step))))
        return taken if process.first else {}

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process watches nothing."""
        return vars(self) | {"_model": None, "_state": None}


class CompleteRecord:
    """Wraps a trainer's two methods on the instance."""

    def __init__(self, log: GenerationLog) -> None:
        self._log = log
        self._rewarded: tuple[list[Any], list[list[int]], Any] | None = None

    def wrap(self, trainer: Any) -> None:
        """Raises `UserError` where the methods are not those of the TRL that is known here."""
        refuse_async(trainer)
        check_signatures(trainer)
        if self._log.attached:
            raise UserError("generations are recorded already; use attach once")
        self._log.attached = True
        score, generate = trainer._calculate_rewards, trainer._generate_and_score_completions

        def calculate(inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            rewards = score(inputs, prompts, completions, completion_ids_list)
            self._rewarded = (
                list(prompts),
                [list(ids) for ids in completion_ids_list],
                rewards.detach().cpu(),
            )
            return rewards

        def generated(inputs: Any) -> Any:
            output = generate(inputs)
            if self._log.training:
                self._keep(trainer, output)
            return output

        trainer._calculate_rewards, trainer._generate_and_score_completions = calculate, generated

    def _keep(self, trainer: Any, output: Mapping[str, Any]) -> None:
        if missing := [name for name in GIVEN_BACK if name not in output]:
            raise UserError(f"TRL's generation gave no {missing[0]}; install trl>=1.16,<1.17")
        assert self._rewarded is not None
        prompts, completions, rewards = self._rewarded
        rank = trainer.accelerator.process_index
        mine = rewards[rank * len(prompts) : (rank + 1) * len(prompts)].tolist()
        given = {
            name: output[name].cpu()
            for name in (*GIVEN_BACK, *SOMETIMES)
            if output.get(name) is not None
        }
        eos = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
        weights, names = trainer.reward_weights.tolist(), trainer.reward_func_names
        fields = []
        for i, (prompt, ids) in enumerate(zip(prompts, completions, strict=True)):
            known = (None if value != value else value for value in mine[i])  # TRL's `nan`
            named = dict(zip(names, known, strict=True))
            fields.append(
                {
                    "prompt": prompt,
                    **row_tokens(given, i, ids),
                    "rewards": named,
                    "reward": total(named.values(), weights),
                    "advantage": float(given["advantages"][i]),
                    "end": "terminated" if ids and ids[-1] in eos else "truncated",
                }
            )
        self._log.add(fields)


def row_tokens(given: Mapping[str, Any], row: int, ids: Sequence[int]) -> dict[str, Any]:
    """Token ids, which of them the policy drew, and the numbers of those; `ids`
    are the completion's.
    """
    prompt = given["prompt_ids"][row][given["prompt_mask"][row].bool()].tolist()
    mask = _part(given, "tool_mask", row, len(ids))
    drawn = [True] * len(ids) if mask is None else [bool(flag) for flag in mask]
    numbers = {name: _part(given, key, row, len(ids)) for key, name in SOMETIMES.items() if name}
    return {
        "token_ids": (*prompt, *ids),
        "sampled": (*[False] * len(prompt), *drawn),
        "turns": (
            1 + sum(now and not before for now, before in zip(drawn[1:], drawn[:-1], strict=True))
        ),
        **{
            name: None if values is None else tuple(compress(values, drawn))
            for name, values in numbers.items()
        },
    }


def refuse_async(named: Any) -> None:
    """Raises `UserError` for an `AsyncGRPOTrainer` or its arguments: its rewards are
    computed in another process, and its model takes packed rows and gives no logits.
    """
    if any(kind.__name__.startswith("AsyncGRPO") for kind in type(named).__mro__):
        raise UserError(
            "AsyncGRPOTrainer computes rewards in another process, and its model gives no logits,"
            " so nothing can be recorded or audited inside it; leave ForensicsForTRL out and audit"
            f" its checkpoints with {WATCH}"
        )


def check_signatures(trainer: Any) -> None:
    """Raises `UserError` where a method that the record wraps is missing or
    takes other arguments.
    """
    for name, wanted in SIGNATURES.items():
        method = getattr(trainer, name, None)
        found = tuple(inspect.signature(method).parameters) if callable(method) else None
        if found != wanted:
            now = "is missing" if found is None else f"takes ({', '.join(found)})"
            raise UserError(
                f"GRPOTrainer.{name} {now} in this TRL, where {KNOWN} has ({', '.join(wanted)});"
                " install trl>=1.16,<1.17, or leave attach out: audits alone need none of it"
            )


def metadata(args: Any, start: str, tokenizer: str, environment: Environment) -> TrainingRun:
    """`run.json` of a TRL run; `recipe` names the kind of record and what it lacks.
    `start`, `tokenizer`: their content hashes.
    """
    from trl import __version__

    return TrainingRun(
        code=code_version(),
        seed=args.seed,
        start=start,
        tokenizer=tokenizer,
        estimator={name: getattr(args, name, None) for name in ESTIMATOR.split()},
        environment={
            "name": environment.name,
            "options": dict(environment.options),
            "without": list(environment.scrubbed),
        },
        recipe={
            "trainer": "trl.GRPOTrainer",
            "trl": __version__,
            "record": "complete",
            "gaps": list(COMPLETE_GAPS),
            **{name: getattr(args, name, None) for name in RECIPE.split()},
        },
    )


def total(rewards: Any, weights: Sequence[float]) -> float | None:
    """The weighted sum over known rewards, as TRL takes it; `None` where none is known."""
    known = [
        weight * reward
        for weight, reward in zip(weights, rewards, strict=True)
        if reward is not None
    ]
    return sum(known) if known else None


def _part(given: Mapping[str, Any], key: str, row: int, length: int) -> list[float] | None:
    """One row of a padded tensor `[rows, tokens]`, without its padding."""
    return given[key][row, :length].tolist() if key in given else None


logger = logging.getLogger("forensics.audit")
PATIENCE = 1800  # seconds until a process gives up waiting, by default
SERVER = "ForensicsForTRL(server=...)"
EPISODE_TOKENS = 1024  # room for prompt and observations beside one completion


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """Model and tokenizer as the hooks' view names them."""

    model: Any
    tokenizer: Any
    identity: str = ""
    capabilities = frozenset({"weights", "tokens"})


class ForensicsForTRL(TrainerCallback):
    """Audits by `settings` in the world that `environment` names (with
    `options`, such as `file`), written to `out`.

    `out` defaults to `forensics` in the trainer's output folder. `sampling`
    defaults to the trainer's temperature, top-p, top-k and completion length.
    `server`: the keys of a recipe's `[server]`; audits play through it then, with the weights
    of their step. `audits=False`: the record alone. `outcome`: the name of a reward function
    that tells whether an answer was right, for the record's `outcome`; without it one that is
    named so, or the only one.
    """

    def __init__(
        self,
        environment: str | Environment,
        *,
        out: Path | str | None = None,
        settings: AuditSettings | None = None,
        sampling: SamplingSettings | None = None,
        audits: bool = True,
        server: ServerSection | dict[str, Any] | None = None,
        outcome: str | None = None,
        **options: str,
    ) -> None:
        if isinstance(environment, str):
            environment = build_environment(environment, options)
        elif options:
            raise UserError(
                "options belong to an environment's name; give them to the environment object"
                " itself"
            )
        self.environment, self.sampling, self.outcome = environment, sampling, outcome
        self.out = None if out is None else Path(out)
        self.audits = ForensicsCallback(settings) if audits else None
        self.server = (
            parse_as(ServerSection, server, SERVER) if isinstance(server, dict) else server
        )
        self.log = GenerationLog(outcome=outcome)
        self._trainer: Any = None
        self._prompts: list[Any] = []
        self._compared = False
        self._view: TrainerView | None = None
        self._scalars: dict[str, float] = {}
        self._recorder: Recorder | None = None
        self._patience, self._warned = PATIENCE, False

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process watches nothing."""
        return vars(self) | {"_trainer": None, "_view": None, "_recorder": None}

    def attach(self, trainer: Any) -> None:
        """Watch `trainer`: audits and the complete record. Raises `UserError`
        where this TRL is not the one known.
        """
        CompleteRecord(self.log).wrap(trainer)
        self._trainer = trainer
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)

    def watched(self, reward_funcs: Any) -> NoReturn:
        """Gone: `attach` records more. Raises `UserError`."""
        raise UserError(
            "watched(reward_funcs) is gone; attach(trainer) records every generation, and with"
            " callbacks=[forensics] alone audits are made without a record"
        )

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        refuse_async(args)
        if self.audits is not None:
            refuse_sharded()
        model, tokenizer = kwargs["model"], kwargs["processing_class"]
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # a processor holds one
        folder = self.out or Path(args.output_dir) / "forensics"
        self._view = view = TrainerView(
            policy=Loaded(model=model, tokenizer=tokenizer),
            environment=self.environment,
            settings=self.sampling or sampling_of(args),
            folder=folder,
            seed=args.seed,
            step=state.global_step,
            log=lambda name, value, step: self._scalars.update({name: value}),
        )
        refuse_another_run(folder, state.global_step)
        self._patience = args.ddp_timeout
        self.log.begin(model, state, args.num_generations)
        if not state.is_world_process_zero:
            return
        if (audits := self.audits) is not None:
            self._prompts = some_prompts(kwargs["train_dataloader"].dataset)
            audits.renderer = renderer_of(model, tokenizer, args, self._trainer, self._prompts[0])
            audits.doubt = UNSEEN
            if self.server is not None:
                view.served = served_audits(self.server, view, audits.renderer)
            self._timed("Playing the start", lambda: audits.on_start(view))
        self._record(view, folder, args, state.global_step)
        self._emit(state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not self._compared:
            self._compared = True
            self._look(state, control, self._compare)
        self._look(state, control, lambda audits, view: audits.on_step_end(view, None))
        self._submit(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._look(state, control, lambda audits, view: audits.on_save(view, folder), agree=False)
        if self._recorder is not None:
            self._recorder.flush()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look(state, control, lambda audits, view: audits.on_end(view), agree=False)
        self._submit(state.global_step + 1)
        if self._recorder is not None:
            self._recorder.close()

    def _compare(self, audits: ForensicsCallback, view: TrainerView) -> None:
        """Hold the first generations' prompts, where they are recorded, and some of the
        training set's against the audits'.
        """
        renderer = audits.renderer
        assert isinstance(renderer, TrlRenderer)
        seen = (*self.log.first, *((prompt, None) for prompt in self._prompts))
        audits.compared(
            view,
            difference(seen, renderer, self.environment, audits.settings.tasks, view.settings),
        )

    def _look(
        self,
        state: Any,
        control: Any,
        call: Callable[[ForensicsCallback, TrainerView], None],
        agree: bool = True,
    ) -> None:
        """Call the audits on the first process; with `agree`, every process
        learns whether to stop.
        """
        view = self._view
        if view is None or self.audits is None:
            return
        view.step = state.global_step
        if state.is_world_process_zero:
            audits = self.audits
            self._timed("An audit", lambda: call(audits, view))
            self._emit(state, control)
        if (
            agree
            and self.audits.settings.on_phantom == "stop"
            and joined().from_first(view.stopped) is not None
        ):
            control.should_training_stop = True

    def _timed(self, what: str, call: Callable[[], None]) -> None:
        """Call, and warn once where the other processes waited long enough to give up
        the next time.
        """
        began = time.monotonic()
        call()
        seconds = time.monotonic() - began
        if joined().size > 1 and seconds > self._patience / 2 and not self._warned:
            self._warned = True
            logger.warning(
                "%s took %.0f s, for which the other processes waited, and they give up after"
                " ddp_timeout=%d s: take fewer tasks or samples, raise ddp_timeout, or audit from a"
                " process of its own with %s.",
                what,
                seconds,
                self._patience,
                WATCH,
            )

    def _emit(self, state: Any, control: Any) -> None:
        """Audit numbers to the trainer's loggers, past TRL's own `log`, which
        would cut its running means short.
        """
        numbers, self._scalars = self._scalars, {}
        if not numbers:
            return
        if self._trainer is None:  # the public interface alone: no logger at hand
            state.log_history.append({**numbers, "step": state.global_step})
            return
        from transformers import Trainer

        due = control.should_log
        Trainer.log(self._trainer, numbers)
        control.should_log = due

    def _record(self, view: TrainerView, folder: Path, args: Any, step: int) -> None:
        if not self.log.attached:
            return
        tokenizer = tokenizer_identity(view.policy.tokenizer)
        auditor = None if self.audits is None else self.audits.auditor
        if auditor is not None:
            start = auditor.start.weights
        elif sharded() is not None:
            start = "unknown"
        else:
            start = model_checkpoint(view.policy.model, tokenizer, step).weights
        run = metadata(args, start, tokenizer, view.environment)
        self._recorder = Recorder(folder, run)
        self._recorder.resume(step)

    def _submit(self, before: int) -> None:
        """Rows of finished steps to the recorder; of all processes, by the first."""
        steps = self.log.take(before)
        if self._recorder is not None:
            for step, rows in steps.items():
                self._recorder.submit(step, rows, {"rows": len(rows)})


def sharded() -> str | None:
    """How the weights are spread over processes, if they are."""
    from accelerate.state import AcceleratorState, DistributedType

    state = AcceleratorState()
    if state.distributed_type == DistributedType.FSDP:
        return "FSDP"
    plugin = getattr(state, "deepspeed_plugin", None)
    return "ZeRO-3" if plugin is not None and plugin.zero_stage == 3 else None


def refuse_sharded() -> None:
    """Raises `UserError`, on every process, where none holds the whole weights."""
    if (how := sharded()) is not None:
        raise UserError(
            f"{how} spreads the weights over processes, so none of them can play an audit; give"
            " ForensicsForTRL audits=False for the record alone, and audit the checkpoints with"
            f" {WATCH}"
        )


def served_audits(section: ServerSection, view: TrainerView, renderer: Renderer) -> Any:
    """What plays audits of `view`'s policy behind a server. Raises `UserError`."""
    from training.served_sampler import ServedSampling

    loaded, folder = view.policy, view.folder
    assert folder is not None
    try:
        section.check(recompute_old=True, adapter=hasattr(loaded.model, "peft_config"))
    except ValueError as error:
        raise UserError(f"{SERVER}: {error}") from None
    name = content_hash(str(folder.absolute()), 8)  # its adapters' on the server, also on resume
    named = replace(loaded, identity=name)
    return ServedSampling(section, named, renderer, folder).at


def sampling_of(args: Any) -> SamplingSettings:
    """A trainer's own sampling. Raises `UserError` for what an audit cannot draw alike."""
    if args.min_p or args.repetition_penalty != 1.0 or args.generation_kwargs:
        raise UserError(
            "audits cannot draw with min_p, a repetition penalty or generation_kwargs; give"
            " ForensicsForTRL its own sampling"
        )
    completion = args.max_completion_length or EPISODE_TOKENS
    return SamplingSettings(
        temperature=args.temperature,
        top_k=args.top_k or 0,
        top_p=args.top_p,
        max_turn_tokens=completion,
        max_tokens=completion + EPISODE_TOKENS,
    )


def refuse_another_run(folder: Path, step: int) -> None:
    """A run from the start would write over audits and record of an earlier
    one. Raises `UserError`.
    """
    lines = folder / LINES
    if step == 0 and (
        (lines.exists() and lines.read_text().strip()) or any((folder / FOLDER).glob("step-*.json"))
    ):
        raise UserError(
            f"{folder} holds the audits or the record of a run; go on with it"
            " (resume_from_checkpoint), give ForensicsForTRL another out=, or delete that folder"
        )
