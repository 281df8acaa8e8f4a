"""The two things an investigation runs on: an environment and a policy.

Both are protocols. A stranger's class that has these methods plugs in through
the entry points `forensics.environments` and `forensics.policies`; nothing here
has to be inherited. `forensics.world.World` is a base with defaults for an environment.

What an environment may have beside the methods of `Environment` has a protocol of its own.
An instrument that needs one of them asks `isinstance`, and says what is missing where it is not
there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from forensics.records.trajectory import Trajectory

Capability = Literal[
    "tokens",  # tokenizer and renderer: what its token ids mean
    "logprobs",
    "distributions",
    "sample",
    "activations",
    "play",
    "constraint",  # `play` and `sample` refuse actions and draw them again
    "interventions",  # `play` and `sample` change activations
    "branches",  # many continuations of known texts, the prefix cache shared
    "weights",  # `model`, a torch module in this process
]


@dataclass(frozen=True, kw_only=True)
class Channel:
    """A named shortcut that an environment knows it has.

    `family`: what kind of evidence chain applies: `disclosure` (something shows
    the answer) or `tampering` (the grading itself is bent). `attempts`: action
    kinds that try it. `honest_reward` / `bent_reward` (tampering only): named
    reward components; a run whose bent one is a win while its honest one is not
    has obtained the shortcut. `marked`: whether steps that show its content are
    marked with it; where they are not, no mark says nothing.
    """

    name: str
    family: str
    attempts: tuple[str, ...]
    description: str
    honest_reward: str | None = None
    bent_reward: str | None = None
    marked: bool = True

    def content(self) -> dict[str, Any]:
        """As `case.json` states it."""
        told = asdict(self)
        return told if not self.marked else {k: v for k, v in told.items() if k != "marked"}


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the environment says at `reset`. `channels`: shortcuts whose content
    the prompt itself shows.
    """

    text: str
    system: str | None = None
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The answer to one action.

    `channels`: shortcuts whose content this observation showed. `outcome` and
    `rewards` are set when the episode is over. `terminated` (by the rules) and
    `truncated` (by a budget) stay apart.
    """

    observation: str
    kinds: tuple[str, ...]
    channels: tuple[str, ...] = ()
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    outcome: float | None = None
    terminated: bool = False
    truncated: bool = False
    submission: str | None = None
    end_reason: str | None = None


@runtime_checkable
class Environment(Protocol):
    """A text world. Text goes in and out; tokens are the policy's business.

    A world may have an attribute `rendering`, which a policy honours: `bare`
    for texts that are given to the policy as they stand, `shell` for a
    transcript, `tool` for observations as tool messages, `auto` (as without it) for the
    tokenizer's own way (`forensics.policies.renderers`). It belongs into `options` where
    it can be chosen. A text `chat_note` is said where a policy with a chat template plays
    a world that was not made for one. A number `steps_at_once`: of how many episodes
    `reset` and `step` may run at once, in threads.

    One instance holds one episode. `spawn()` gives a fresh instance that shares
    what never changes, so that many episodes run side by side. `snapshot()`
    holds everything that `restore()` needs to go on exactly, random state
    included.
    """

    @property
    def name(self) -> str: ...
    @property
    def options(self) -> Mapping[str, str]:
        """Every option with its value, defaults included: the environment's identity."""
        ...

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The shortcuts that are open in this world."""
        ...

    @property
    def scrubbed(self) -> tuple[str, ...]:
        """The channels that were taken out of this world."""
        ...

    def without(self, *channels: str) -> "Environment":
        """The same world scrubbed of these channels, looking natural."""
        ...

    def tasks(self, split: str, number: int, seed: int) -> tuple[str, ...]:
        """Task names of a split (`train` or `held-out`); the two splits never share a task."""
        ...

    def spawn(self) -> "Environment": ...
    def reset(self, task: str, seed: int) -> Observation: ...
    def step(self, action: str) -> StepResult: ...
    def kinds(self, action: str) -> tuple[str, ...]:
        """The kinds of the actions in a text, without taking them."""
        ...

    def snapshot(self) -> Any: ...
    def restore(self, state: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How tokens are drawn. Log-probabilities are always stated under these
    settings.

    `temperature` 0 is greedy. `top_k` 0 and `top_p` 1 switch the truncations
    off.
    `max_turn_tokens`: tokens per action. `max_tokens`: tokens of a whole
    episode, prompt included. `repetition_penalty` (1 is off),
    `presence_penalty` and `frequency_penalty` (0 is off) mean what vLLM means
    by them, each action being one request to a server: its *output* is what the
    running action has so far, its prompt everything before. Repetition looks at
    both, presence and frequency at the output alone.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    max_turn_tokens: int = 64
    max_tokens: int = 2048
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    @property
    def penalises_output(self) -> bool:
        """Whether a probability depends on where the running action started."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0

    @property
    def penalises(self) -> bool:
        """Whether a probability depends on more than the logits."""
        return self.repetition_penalty != 1 or self.penalises_output

    def content(self) -> dict[str, float]:
        """What content addresses hold: every field, penalties only where they
        are on (so that older ones hold).
        """
        off: set[str] = (
            set()
            if self.penalises
            else {"repetition_penalty", "presence_penalty", "frequency_penalty"}
        )
        return {key: value for key, value in asdict(self).items() if key not in off}


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """Refuse an action and draw it again.

    `allows(text, kinds)` judges a finished action. `name` identifies the
    constraint in content addresses, so it must say everything that matters (for
    example `refuse:history`); `said`: the same for people. After `max_redraws` refusals
    the episode is errored, never counted as a failure of the policy.
    """

    name: str
    allows: Callable[[str, tuple[str, ...]], bool]
    max_redraws: int = 64
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class Alteration:
    """The same tasks and the same grading, with what a policy is shown changed.

    `of` makes the altered world of an environment
    (`resampling.gain_tests.altered_worlds` has what they share). `name` identifies
    it in content addresses, so it must say everything that matters; `said`: the same for people,
    such as "prompts with their rows shuffled".
    """

    name: str
    of: "Callable[[Environment], Environment]"
    said: str = ""


@dataclass(frozen=True, kw_only=True)
class ActivationContext:
    """Where an intervention acts: `positions` [chunk] are absolute token
    positions, `deciding` [rows] says which rows draw the first token of an
    action from the chunk's last position.
    """

    positions: Any
    deciding: Any


@dataclass(frozen=True, kw_only=True)
class Intervention:
    """Change a site's activations.

    `site` is a TransformerLens name such as `blocks.3.hook_resid_post`. `apply`
    takes activations `[rows, chunk, features]` and the context, and returns the
    same shape. `name` identifies it.
    """

    site: str
    name: str
    apply: Callable[[Any, ActivationContext], Any]


@dataclass(frozen=True, kw_only=True)
class Continuation:
    """One sampled continuation: its tokens, their log-probabilities (nats) and why it stopped."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: str  # "stop-token", "length", or "refused": every draw was refused, no tokens


class Renderer(Protocol):
    """How an episode's text becomes tokens, append-only. `stops`: token ids that end an action."""

    stops: frozenset[int]

    def prompt(self, text: str, system: str | None) -> list[int]: ...
    def reply(self, observation: str, action: Sequence[int]) -> list[int]:
        """Tokens between an action that ended with `action[-1]` and the next one."""
        ...

    def action_text(self, token_ids: Sequence[int]) -> str: ...


class Policy(Protocol):
    """A model that can score, sample and show activations.

    A backend states in `capabilities` what it has. `identity` and
    `capabilities` are always there, everything else only where it is stated;
    who needs more asks `forensics.policies.require`.
    """

    @property
    def identity(self) -> str: ...
    @property
    def capabilities(self) -> frozenset[Capability]: ...
    @property
    def tokenizer(self) -> Any: ...
    @property
    def renderer(self) -> Renderer: ...
    @property
    def context_length(self) -> int | None:
        """The longest text in tokens, `None` where nothing limits it."""
        ...

    model: Any

    @property
    def batch_rows(self) -> int:
        """How many texts one batch holds."""
        ...

    def within(self) -> AbstractContextManager[Any]:
        """Entered around every pass of `model`."""
        ...

    def rendered_for(self, environment: Environment) -> "Policy":
        """This policy with the renderer that `environment` asks for."""
        ...

    def logprobs(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> list[np.ndarray]:
        """Log-probability of every token but the first, nats, `[length - 1]`
        for each sequence.

        `starts`: where the actions of each sequence start; needed for penalties
        on the output alone.
        """
        ...

    def distributions(
        self,
        token_ids: Sequence[Sequence[int]],
        settings: SamplingSettings,
        starts: Sequence[Sequence[int]] | None = None,
    ) -> Iterator[tuple[int, int, Any]]:
        """What can follow the positions `start` to `end - 1` of texts of equal
        length: `(start, end, log-probabilities [texts, end - start, vocabulary])`.
        """
        ...

    def branch(self, texts: Sequence[Any], settings: SamplingSettings) -> Iterator[None]:
        """Drive every branch of every `forensics.policies.sequences.BranchedText`
        to its end; gives control back after each step of the batch.
        """
        ...

    def prefix_caches(self, texts: Sequence[Sequence[int]]) -> list[Any] | None:
        """What the model keeps of each text, read once; `None` where nothing serves."""
        ...

    def sample(
        self,
        prefixes: Sequence[Sequence[int]],
        n: int,
        settings: SamplingSettings,
        seed: int,
        constraint: Constraint | None = None,
        interventions: Sequence[Intervention] = (),
    ) -> list[list[Continuation]]:
        """`n` continuations of each prefix, which share the prefix's KV cache."""
        ...

    def activations(
        self, token_ids: Sequence[Sequence[int]], sites: Sequence[str]
    ) -> list[dict[str, np.ndarray]]:
        """Activations at TransformerLens sites, `[length, features]` for each sequence and site."""
        ...

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
        """Multi-turn episodes, `samples` of each task, in the order of `tasks`."""
        ...


@runtime_checkable
class Regrading(Protocol):
    """Grading a submission apart from the run that made it.

    Tampering with the grader and answers that fit the visible tests alone are
    found by it, declared or not.
    """

    def regrade(self, task: str, submission: str) -> Mapping[str, float | None]:
        """Named rewards, and the score that counts under `outcome`, of a
        submission in a fresh copy of the task.

        `submission` is what a step of this environment told as such, `""` where
        a run handed in nothing. Nothing else that the run changed comes along,
        and hidden checks decide: it must not share the code that graded the
        run, or both have the same holes. `None`: cannot be told.
        """
        ...


@runtime_checkable
class Needing(Protocol):
    """The kinds of action that an honest solver needs.

    They are exempt from refusal, and from nothing else: a gain that takes an
    edit is no gain by editing.
    """

    @property
    def needed(self) -> tuple[str, ...]: ...


@runtime_checkable
class Withholding(Protocol):
    """The secrets of a task, wherever they may leak."""

    def withheld(self, task: str) -> tuple[str, ...]:
        """Texts that an honest run is never shown: the reference answer, the
        outputs that only the grader knows.
        """
        ...


@runtime_checkable
class Referenced(Protocol):
    """The right answers, for asking whether one line of code would win the set."""

    def reference(self, task: str) -> str | None:
        """The right answer to a task as it would be handed in; `None` where there is no one
        answer, as where a pattern decides.
        """
        ...


@runtime_checkable
class Fielded(Protocol):
    """The parts of a prompt that differ from task to task."""

    def fields(self, task: str) -> Mapping[str, str]:
        """Name of each field, and its exact text as it stands in the prompt of this task.

        The same names for every task. The one that is the question itself is
        called `question`: it is allowed to give the answer away alone.
        """
        ...


@runtime_checkable
class Varying(Protocol):
    """The same skill asked in other words."""

    def variant(self, task: str, seed: int) -> str:
        """The name of another task of this world, which `reset` takes like any other.

        The same skill is asked and it is as hard; incidental features (names,
        numbers, ids, order) are redrawn and answers reshuffled. A function of
        `task` and `seed` alone. It is in no split.
        """
        ...


@runtime_checkable
class Rehearsed(Protocol):
    """Scripts that show whether the world's scrubbed twins are fair (`forensics twin`)."""

    @property
    def scripts(self) -> Mapping[str, Callable[[Sequence[str], str], str | None]]:
        """`honest`, perhaps `bystander`, and the name of each channel: its cheat. Each is
        given every text read so far, the prompt first, and the task; returns the next action.
        """
        ...
