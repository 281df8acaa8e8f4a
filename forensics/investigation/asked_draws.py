"""How a server is asked for draws: behind which contexts, how often, and where they are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from forensics.progress import Progress, silent
from forensics.protocols import Environment, SamplingSettings
from forensics.records import Step, Trajectory, content_hash
from forensics.records.files import read_json, write_json
from forensics.records.trajectory import action_starts

DRAWS: Final = "draws"  # the folder of what was drawn
PIECE: Final = 16  # contexts that are asked for, and kept, together


@dataclass(frozen=True, kw_only=True)
class DrawsConfig:
    """How a server is asked, and what is tolerated.

    `samples`: actions behind each context. `arithmetic`: the coarsest that the server may have.
    `rate`: of false alarms. `device`, `dtype`: of the claimed checkpoint here.
    """

    settings: SamplingSettings = field(default_factory=SamplingSettings)
    samples: int = 8
    seed: int = 0
    arithmetic: str = "bfloat16"
    device: str = "auto"
    dtype: str = "float32"


def sampled_runs(
    served: Any, block: Sequence[Sequence[int]], config: DrawsConfig
) -> list[Trajectory]:
    """A run of one action for each draw: its tokens and what the server told of them."""
    rows = served.sample(block, config.samples, config.settings, config.seed)
    return [
        _run(ids, one, f"{number}-{sample}")
        for number, (ids, row) in enumerate(zip(block, rows, strict=True))
        for sample, one in enumerate(row)
        if one.token_ids
    ]


def _run(ids: Sequence[int], drawn: Any, name: str) -> Trajectory:
    given = Step(
        role="user", text="", token_ids=tuple(ids), sampled=(False,) * len(ids), logprobs=()
    )
    own = len(drawn.token_ids)
    said = Step(
        role="assistant",
        text="",
        token_ids=drawn.token_ids,
        sampled=(True,) * own,
        logprobs=drawn.logprobs,
    )
    return Trajectory(
        id=name,
        task=name,
        policy="served",
        environment="contexts",
        seed=0,
        steps=(given, said),
        outcome=None,
        end="truncated",
    )


@dataclass(frozen=True, kw_only=True)
class Contexts:
    """Where the draws begin: behind each of `prompts`, or in episodes of a world that the
    claimed checkpoint plays, before each action.
    """

    prompts: Sequence[str] = ()
    environment: Environment | None = None
    tasks: int = 100

    def rendered(self, policy: Any) -> Any:
        """The policy with the rendering that the world asks for."""
        return policy if self.environment is None else policy.rendered_for(self.environment)

    def of(self, claimed: Any, config: DrawsConfig, progress: Progress = silent) -> list[list[int]]:
        """As token ids, each once."""
        world, found = self.environment, dict[tuple[int, ...], None]()
        for prompt in self.prompts:
            found[tuple(claimed.renderer.prompt(prompt, None))] = None
        names = world.tasks("held-out", self.tasks, config.seed) if world is not None else ()
        played = claimed.play(world, names, 1, config.settings, config.seed) if names else ()
        for number, run in enumerate(played, 1):
            ids = [token for step in run.steps for token in step.token_ids or ()]
            found |= {tuple(ids[:start]): None for start in action_starts(run)}
            progress("episodes", number, len(names))
        return [list(ids) for ids in found]


class KeptDraw(NamedTuple):
    """One action that a server drew."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@dataclass(frozen=True)
class KeptDraws:
    """A server whose draws are kept in a folder, so that a check that was killed asks for the
    others only. A draw depends on its context and the seed, not on what is asked for beside it.
    """

    served: Any
    folder: Path
    progress: Progress = silent

    def sample(
        self, contexts: Sequence[Sequence[int]], samples: int, settings: SamplingSettings, seed: int
    ) -> list[list[KeptDraw]]:
        """`samples` draws behind each context."""
        rows: list[list[KeptDraw]] = []
        for start in range(0, len(contexts), PIECE):
            self.progress("draws", start, len(contexts))
            piece = contexts[start : start + PIECE]
            asked = [[list(ids) for ids in piece], samples, settings.content(), seed]
            place = self.folder / DRAWS / f"{content_hash(asked)}.json"
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                write_json(place, _drawn(self.served.sample(piece, samples, settings, seed)))
            rows += [[_kept(*draw) for draw in row] for row in read_json(place)]
        self.progress("draws", len(contexts), len(contexts))
        return rows


def _drawn(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [
        [[list(one.token_ids), None if one.logprobs is None else list(one.logprobs)] for one in row]
        for row in rows
    ]


def _kept(ids: Sequence[int], logprobs: Sequence[float] | None) -> KeptDraw:
    return KeptDraw(tuple(ids), None if logprobs is None else tuple(logprobs))
