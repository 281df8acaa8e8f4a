"""The complete record of TRL's generations: what `GRPOTrainer` sampled, how it
was rewarded, which advantage it gave.

TRL 1.16 has no public hook that sees a generation together with its advantages.
Two methods of the trainer do, and are wrapped on the instance:
`_calculate_rewards` (the exact token ids and every reward) and
`_generate_and_score_completions` (masks, advantages, log-probabilities). Their
signatures, and what they give back, are held against what is known here, so
that a changed TRL is refused instead of recorded wrongly.

What TRL itself does not compute is absent and named in `run.json`: with
generation by transformers there are no sampler log-probabilities, and with
aligned steps no old ones (TRL takes those of the update itself).
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress, takewhile
from typing import Any

from forensics.errors import UserError
from forensics.protocols import Environment
from forensics.readers import outcome_of
from forensics.records import TrainingRow, TrainingRun, content_hash
from forensics.version import code_version
from training.distributed import joined
from training.live.callback import WATCH
from training.live.trl_prompts import Seen

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
            named = dict(zip(names, map(known_reward, mine[i]), strict=True))
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


def known_reward(value: float | None) -> float | None:
    """A reward as a number; `None` where TRL has `nan`."""
    return None if value is None or value != value else float(value)
