"""A base policy for a world of one's own: a small model, trained from nothing on
what scripted solvers of that world did.

1. *Demonstrations* are JSON lines, `{"task": NAME, "actions": [TEXT, ...]}`,
   written by solvers of the user's own. The world is played again with them, so
   that what it says stands between the actions as it will when the policy plays.
   Tasks of the split `held-out` are refused: RL would begin with what it is
   measured on.
2. *Words*. A word-level tokenizer of the texts met: runs of letters, numbers,
   single signs, single blanks. A word that was met often is one token, any other
   is spelt; a text comes back exactly as it was.
3. *Training* as for the bases of the organisms (`supervised.train_phase`): all
   tokens, those that the solver wrote at full weight.

How good the base is, is how good its demonstrations are: a share of careless ones
leaves RL something to gain.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import Field

from forensics.errors import UserError
from forensics.investigation import build_environment
from forensics.policies import inspect_checkpoint, renderer_for, resolve_device, style_of
from forensics.protocols import Environment, Renderer
from forensics.records import content_hash
from forensics.study import Folder, Result
from training.organisms.base_model import SPECIAL, Phase, build_model, train_phase
from training.organisms.demonstrations import Demonstration
from training.run_state import save_checkpoint
from training.sections import Names, Section, read_lines

PIECES: Final = r"[^\W\d_]+|\d+|\s|[^\w\s]|_"
MET_OFTEN: Final = 5  # times, below which a word is spelt
MOST_WORDS: Final = 4096
HELD_OUT: Final = 10_000  # tasks that are looked through
BATCH: Final = 32
SHORTEST: Final = 512  # tokens of context, at least


class Row(Section):
    """One demonstration. `seed`: what the world was reset with. `without`: the
    channels that it was scrubbed of.
    """

    task: str
    actions: Names = Field(min_length=1)
    seed: int = Field(0, ge=0)
    without: Names = ()


@dataclass(frozen=True, kw_only=True)
class Played:
    """A demonstration as the world answers it: the prompt, then actions with their answers."""

    where: str
    prompt: str
    system: str | None
    turns: tuple[tuple[str, str], ...]
    outcome: float | None

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.system or "", self.prompt, *chain(*self.turns))


@dataclass(frozen=True, kw_only=True)
class OwnBase:
    """The study behind `forensics base`."""

    environment: str
    demonstrations: Path
    options: Mapping[str, str] = field(default_factory=dict)
    steps: int = 1000
    seed: int = 0
    device: str = "auto"
    name: ClassVar = "base"
    files: ClassVar = ("checkpoint", "state")

    def check(self, folder: Folder) -> tuple[Environment, list[Played]]:
        """Play every demonstration. Raises `UserError` for the first that is amiss."""
        world = build_environment(self.environment, self.options)
        style_of(world)
        resolve_device(self.device)
        rows = list(read_lines(self.demonstrations, Row, "give JSON lines in UTF-8"))
        if not rows:
            raise UserError(
                f"{self.demonstrations} holds no demonstrations; write one JSON object a line:"
                ' {"task": NAME, "actions": [TEXT, ...]}'
            )
        held_out = frozenset(world.tasks("held-out", HELD_OUT, self.seed))
        name = self.demonstrations.name
        return world, [play(world, row, f"{name} line {n}", held_out) for n, row, _ in rows]

    def inputs(self, ready: tuple[Environment, list[Played]]) -> dict[str, Any]:
        world, played = ready
        return {
            "environment": {"name": world.name, **world.options},
            "demonstrations": content_hash([one.texts for one in played]),
            "steps": self.steps,
            "seed": self.seed,
        }

    def run(
        self, ready: tuple[Environment, list[Played]], folder: Folder
    ) -> tuple[list[Played], Path]:
        world, played = ready
        tokenizer = word_tokenizer(chain(*(one.texts for one in played)))
        renderer = renderer_for(tokenizer, style=style_of(world))
        pool = [tokens(one, tokenizer, renderer) for one in played]
        longest = max(len(one.token_ids) for one in pool)
        model = build_model(len(tokenizer), self.seed, max(SHORTEST, 2 * longest))
        model = model.to(resolve_device(self.device))
        warmup = min(100, 1 + self.steps // 10)
        phase = Phase(steps=self.steps, pool=len(pool), batch=BATCH, warmup=warmup)
        train_phase(model, pool, phase, self.seed, folder.path, folder.progress, "demonstrations")
        target = folder.path / "checkpoint"
        options = dict(self.options)
        if "file" in options:  # a relative path would start at the checkpoint
            options["file"] = str(Path(options["file"]).expanduser().resolve())
        hint = {"name": self.environment, "options": options}
        save_checkpoint(target, model, tokenizer, hint)
        return played, target

    def write(self, found: tuple[list[Played], Path], folder: Folder) -> Result:
        played, target = found
        won = [one.outcome for one in played if one.outcome is not None]
        share = sum(won) / len(won) if won else None
        told = "" if share is None else f", with a mean outcome of {share:.2f}"
        return Result(
            summary={
                "checkpoint": str(target),
                "weights": inspect_checkpoint(target).weights,
                "demonstrations": len(played),
                "mean_outcome": share,
            },
            sentences=(
                f"Trained on {len(played)} demonstrations{told}.",
                f"Checkpoint: {target}",
            ),
        )


def play(world: Environment, row: Row, where: str, held_out: frozenset[str]) -> Played:
    """What the world says to a demonstration. Raises `UserError` where it does not fit."""
    if row.task in held_out:
        raise UserError(
            f"{where}: {row.task} is a held-out task, on which the policy will be measured;"
            ' demonstrate tasks("train", ...)'
        )
    episode = (world.without(*row.without) if row.without else world).spawn()
    try:
        start = episode.reset(row.task, row.seed)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{where}: the world cannot reset to {row.task} ({error!r})") from error
    turns, outcome = [], None
    for number, action in enumerate(row.actions, 1):
        result = episode.step(action)
        turns.append((action, result.observation))
        if result.terminated or result.truncated:
            outcome = result.outcome
            if number < len(row.actions):
                raise UserError(
                    f"{where}: the episode ended after {number} of {len(row.actions)} actions;"
                    " leave out the rest"
                )
    return Played(
        where=where, prompt=start.text, system=start.system, turns=tuple(turns), outcome=outcome
    )


def word_tokenizer(texts: Iterable[str]) -> Any:
    """A tokenizer of the words met (step 2): signs and printable ASCII by themselves."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    split = pre_tokenizers.Split(Regex(PIECES), "isolated")
    met = Counter(piece for text in texts for piece, _ in split.pre_tokenize_str(text))
    often = sorted((word for word in met if met[word] >= MET_OFTEN), key=lambda w: (-met[w], w))
    signs = ["\n", *map(chr, range(32, 127)), *sorted({sign for word in met for sign in word})]
    words = list(dict.fromkeys([*SPECIAL, *signs, *often[:MOST_WORDS]]))
    spelt = models.BPE(
        vocab={word: i for i, word in enumerate(words)},
        merges=[],
        unk_token="<unk>",
        ignore_merges=True,
    )
    made = Tokenizer(spelt)
    made.pre_tokenizer, made.decoder = split, decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="<unk>",
        pad_token="<pad>",
        eos_token="<eos>",
        clean_up_tokenization_spaces=False,
    )


def tokens(played: Played, tokenizer: Any, renderer: Renderer) -> Demonstration:
    """The tokens as the policy would have drawn them. Raises `UserError` where an
    action holds what ends one.
    """
    line_break = tokenizer.convert_tokens_to_ids("\n")
    end = line_break if line_break in renderer.stops else tokenizer.eos_token_id
    ids = renderer.prompt(played.prompt, played.system)
    sampled = [False] * len(ids)
    for number, (action, observation) in enumerate(played.turns, 1):
        drawn = list(tokenizer(action, add_special_tokens=False)["input_ids"])
        if renderer.stops.intersection(drawn):
            raise UserError(
                f"{played.where}: an action holds a line break, which ends an action; write it on"
                " one line"
            )
        drawn.append(end)
        follow = renderer.reply(observation, drawn) if number < len(played.turns) else []
        ids += drawn + follow
        sampled += [True] * len(drawn) + [False] * len(follow)
    return Demonstration(
        token_ids=tuple(ids), sampled=tuple(sampled), outcome=played.outcome or 0.0
    )
