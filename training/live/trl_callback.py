"""Forensics in TRL's `GRPOTrainer` (1.16): audits and a training record, in
three lines of a user's script.

    from training.live import ForensicsForTRL
    forensics = ForensicsForTRL("prompts", file="questions.jsonl", out="forensics")
    forensics.attach(trainer)

1. As a `TrainerCallback` it audits through `ForensicsCallback`: the same hooks,
   folders and reactions as in our own trainer, with the sampling settings of
   the trainer's arguments. This uses public interfaces alone.
2. `attach` also records every generation completely, by wrapping two methods of
   the trainer whose signatures are checked first (`trl_record`). Without it
   (`callbacks=[forensics]`) there are audits and no record.

Weights that are sharded over processes (FSDP, ZeRO-3) cannot be played by one
of them: pass `audits=False` for the record alone, and audit saved checkpoints with
`forensics watch`. Under plain data parallelism the first process audits and takes down
the rows of all, while the others wait.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from transformers.trainer_callback import TrainerCallback

from forensics.errors import UserError
from forensics.investigation import build_environment
from forensics.policies import model_checkpoint, tokenizer_identity
from forensics.protocols import Environment, Renderer, SamplingSettings
from forensics.records import RECORD_FOLDER as FOLDER, content_hash
from training.distributed import joined
from training.live.audit_report import LINES, AuditSettings
from training.live.callback import WATCH, ForensicsCallback, TrainerView
from training.live.trl_prompts import UNSEEN, TrlRenderer, difference, renderer_of, some_prompts
from training.live.trl_record import CompleteRecord, GenerationLog, metadata, refuse_async
from training.recipe import ServerSection
from training.recorder import Recorder
from training.sections import parse_as

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
