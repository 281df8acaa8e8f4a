"""Recipes: what `forensics train` reads. TOML; an unknown or misspelt key is
refused with the known ones.
"""

from math import cos, pi
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import Field, create_model, model_validator

from forensics.errors import UserError
from forensics.records import parse_toml, read_text
from training.groups import estimator_named
from training.live.audit_report import AuditSection
from training.loss_section import Objective, policy_loss_named
from training.sections import MOST, NO_BOUND, Names, Section, Text, later, parse_as
from training.trackers import LoggingSection

ON: Final[dict[str, dict[str, Any]]] = {  # where a server samples
    "grpo": {"recompute_old": True},
    "objective": {"importance": "mask"},
}


class NotServed(UserError):
    """The server does not answer, or does not show that it serves the weights that it was given."""


class ServerSection(Section):
    """Episodes are sampled by a server of completions (vLLM, SGLang), not in this process.

    `url`: up to and with `/v1`. `model`: the name that it serves the start by (without it:
    its only one). `at_once`: requests under way at a time. `folder`: where the weights of
    each step are put for the server (without it `server/` in the run's). `reload`: without
    [lora], the command that makes the server read a checkpoint; `{folder}` in it is that
    directory. `largest_gap`: mean difference of log-probabilities in nats beyond which the
    sampler is taken to be at fault (`training.served_sampler`).

    With a server `grpo.recompute_old` is on, and `objective.importance` is "mask" unless it
    is given: a token that one side finds twice as likely as the other is left out.
    """

    url: str
    model: str | None = None
    at_once: int = Field(64, ge=1, le=MOST)
    folder: str | None = None
    reload: str | None = None
    largest_gap: float = Field(0.02, gt=0)

    def check(self, recompute_old: bool, adapter: bool) -> None:
        """Raises `ValueError` for what cannot be done with a server."""
        if not recompute_old:
            raise ValueError(
                "what a server drew is compared with the trainer's own log-probabilities; leave"
                " recompute_old = false out of [grpo]"
            )
        if not adapter and self.reload is None:
            raise ValueError(
                "without [lora] a server must be told to read new weights; give the command as"
                " reload under [server], or train an adapter"
            )


class PolicySection(Section):
    """`checkpoint`: a Hugging Face directory, or `bundled:NAME`."""

    checkpoint: str


class EnvironmentSection(Section):
    """`options`: all are text; numbers and booleans are taken by their text.
    `without`: channels scrubbed while training.
    """

    name: str
    options: dict[str, Text] = {}
    without: Names = ()


class SamplingSection(Section):
    temperature: float = Field(1.0, gt=0)
    max_turn_tokens: int = Field(16, ge=1, le=MOST)
    max_tokens: int = Field(256, ge=2, le=MOST)


class GrpoSection(Section):
    """The schedule of a run, its groups, and what happens when something
    breaks.

    Each step plays `samples` attempts of `groups` different prompts (of all
    there are, with a warning, where there are fewer). `filter`: groups that are
    not trained on (`dead`: all rewards equal within `dead_tolerance`;
    `variance`: also those of unusually small spread; `none`). `refill`: how
    often dropped groups are replaced by new prompts within a step.
    `curriculum`: `fresh` prompts at every step, or `prioritised` from a pool of
    `pool`. `advantages`: the estimator, by name, which may bring keys of its own;
    of `group`, `scaling`: divided by the standard deviation of their group, of the
    step, or not at all.

    A step's rows are passed over `epochs` times, in `minibatches` optimizer
    steps each, at most `rows` rows through the model at once (without it: 128, or
    as many as memory allows, see `training.trained_model`). `recompute_old`:
    the trainer's own log-probabilities before the update stand in the ratio
    instead of the sampler's. That takes a pass of its own, except in one epoch of
    one minibatch, where they are those of the update itself and the ratio is
    exactly 1. Without it the ratio also holds by how much the sampler's arithmetic
    (one token at a time) differs from the trainer's (whole rows), and that
    difference is clipped too. `step_seconds`: limit on one step of the
    environment (0: none). `steps_at_once`: so many episodes may be in the environment
    at once, in threads; a turn then takes as long as its slowest step.
    `most_skipped`: an optimizer step whose loss or gradient is not finite is left
    out and counted; with more than so many in a row the run ends.
    `schedule`: how the learning rate goes (`rate`), after a straight rise over
    `warmup_steps`.
    `on_environment_error`: an episode that the environment broke stops the run,
    or has no reward, whatever the reward functions say, and takes no part.
    `on_reward_error`: so does one whose reward raised or gave no finite number.
    """

    steps: int = Field(ge=0, le=MOST)
    groups: int = Field(16, ge=1, le=MOST)
    samples: int = Field(8, ge=2, le=MOST)
    filter: Literal["dead", "variance", "none"] = "dead"
    refill: int = Field(0, ge=0, le=20)
    dead_tolerance: float = Field(0.0, ge=0)
    advantages: str = later("group")
    scaling: Literal["group", "batch", "none"] = "group"
    curriculum: Literal["fresh", "prioritised"] = "fresh"
    pool: int = Field(512, ge=1, le=NO_BOUND)
    epochs: int = Field(1, ge=1, le=MOST)
    minibatches: int = Field(1, ge=1, le=MOST)
    rows: int | None = later(None, ge=1, le=NO_BOUND)
    recompute_old: bool = False
    learning_rate: float = Field(3e-4, gt=0, le=1)
    schedule: Literal["constant", "linear", "cosine"] = later("constant")
    warmup_steps: int = later(0, ge=0, le=MOST)
    weight_decay: float = Field(0.0, ge=0)
    gradient_norm: float = Field(1.0, gt=0)
    most_skipped: int = later(5, ge=0)
    on_reward_error: Literal["stop", "missing"] = "stop"
    on_environment_error: Literal["stop", "drop"] = "drop"
    step_seconds: float = Field(0.0, ge=0)
    steps_at_once: int = later(1, ge=1, le=4096)
    save_every: int = Field(10, ge=1, le=NO_BOUND)

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0: `learning_rate` after the warm-up, or from
        there down to nothing behind the last step, straight or by half a cosine. As in
        `transformers.get_scheduler`, but that the first step of a warm-up is not 0.
        """
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        left = 1 - (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1)
        shapes = {"constant": 1.0, "linear": left, "cosine": (1 - cos(pi * left)) / 2}
        return self.learning_rate * shapes[self.schedule]

    @model_validator(mode="after")
    def _suits_its_estimator(self) -> Self:
        if self.advantages == "group" and type(self) is GrpoSection:
            return self
        estimator = estimator_named(self.advantages)
        if type(self) is not (wanted := estimator.config or GrpoSection):
            raise ValueError(
                f"the advantage estimator '{self.advantages}' takes the keys of a"
                f" {wanted.__name__}, not of a {type(self).__name__}"
            )
        for key in estimator.idle:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(
                    f'{key} has no effect with advantages = "{self.advantages}"; leave it out'
                )
        return self


class ComputeSection(Section):
    """`dtype`: of the forward pass (`bfloat16` by autocast; weights and
    optimizer stay in float32). `save_dtype`: the weights of `checkpoint/` are
    rounded to it; without it they are saved in the precision that they were
    trained in, as they are. An update of 1e-6 vanishes in a bfloat16 weight.

    `logits`: formed in that precision, by sampler and update, whatever the forward
    pass has (2506.13585).

    `projection_rows`: positions whose logits are held at once. `compile`:
    `torch.compile` for the update's forward. `gradient_checkpointing`: what the
    layers compute is formed again in the backward pass.
    """

    dtype: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    compile: bool = False
    projection_rows: int = Field(4096, ge=1, le=NO_BOUND)
    save_dtype: Literal["float32", "bfloat16"] | None = later(None)
    logits: Literal["float32"] | None = later(None)


class LoraSection(Section):
    """Train an adapter (2106.09685) instead of the weights; the reference
    policy is the adapter switched off.
    """

    rank: int = Field(16, ge=1, le=MOST)
    alpha: float = Field(32.0, gt=0)
    targets: Names | Literal["all-linear"] = "all-linear"


class ParallelSection(Section):
    """How many processes `torchrun` starts, and how they hold the weights.
    Asserted at the start of a run.
    """

    processes: int = Field(1, ge=1, le=MOST)
    strategy: Literal["ddp", "fsdp"] = "ddp"


class RecordSection(Section):
    """`rollouts`: keep every episode, token by token, one Parquet shard a step
    (see `forensics.records.train_rows`).
    """

    rollouts: bool = True


class Recipe(Section):
    """One training run, but for its seed and its output folder."""

    policy: PolicySection
    environment: EnvironmentSection
    rewards: dict[str, float] = {"outcome": 1.0}
    sampling: SamplingSection = SamplingSection()
    grpo: GrpoSection
    objective: Objective = Objective()
    compute: ComputeSection = ComputeSection()
    lora: LoraSection | None = None
    parallel: ParallelSection = ParallelSection()
    record: RecordSection = RecordSection()
    audit: AuditSection | None = None
    logging: LoggingSection | None = later(None)
    server: ServerSection | None = later(None)

    @model_validator(mode="before")
    @classmethod
    def _corrected(cls, content: Any) -> Any:
        """What is on where a server samples, unless it is given."""
        if not isinstance(content, dict) or content.get("server") is None:
            return content
        given = {name: content.get(name, {}) for name in ON}
        return content | {
            name: ON[name] | one for name, one in given.items() if isinstance(one, dict)
        }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.server is not None:
            self.server.check(self.grpo.recompute_old, self.lora is not None)
        if self.objective.corrects_sampler and not self.grpo.recompute_old:
            key = "importance" if self.objective.importance != "none" else "geometric_limit"
            raise ValueError(
                f"objective.{key} corrects the sampler by the trainer's own log-probabilities; "
                "set recompute_old = true under [grpo]"
            )
        if (
            self.lora is not None
            and self.parallel.strategy == "fsdp"
            and self.parallel.processes > 1
        ):
            raise ValueError(
                'an adapter is small enough for every process; use strategy = "ddp" with [lora]'
            )
        return self


def read_recipe(path: Path) -> Recipe:
    """Read a recipe. Raises `UserError` for a missing file, broken TOML, and
    unknown or bad keys.
    """
    return parse_recipe(read_toml(path), str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """What a recipe file says, unchecked. Raises `UserError` for a missing file and broken TOML."""
    cure = "give a recipe file such as training/recipes/leak.toml"
    text = read_text(path, "recipe ", cure)
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UserError(f"recipe {path} is not valid TOML: {error}; mend it") from None


def parse_recipe(content: dict[str, Any], origin: str) -> Recipe:
    """A recipe from a dictionary; its `[objective]` has the keys of the loss it
    names, its `[grpo]` those of the advantage estimator. Raises `UserError` for
    unknown or bad keys.
    """
    fields: dict[str, Any] = {}
    if (loss := _named(content, "objective", "loss")) not in (None, "clipped"):
        config: Any = policy_loss_named(loss).config
        fields["objective"] = (config, Field(default_factory=config))
    if (estimator := _named(content, "grpo", "advantages")) is not None:
        fields["grpo"] = (estimator_named(estimator).config or GrpoSection, ...)
    kind = create_model("Recipe", __base__=Recipe, **fields) if fields else Recipe
    return parse_as(kind, content, origin)


def _named(content: dict[str, Any], section: str, key: str) -> str | None:
    """The plug-in that a section of a recipe names, if it does."""
    found = content.get(section)
    name = found.get(key) if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
