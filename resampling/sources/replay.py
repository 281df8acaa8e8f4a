"""Actions that were recorded, taken again in the world of any task: no policy,
no sampling, fresh instances of the environment.

1. The recorded runs of a side are read as `Played` runs: what was done, what
   was handed in, what it scored.
2. `Replays.score` resets a fresh instance to a task and takes the actions, one
   after the other, until the environment ends the episode. Its score counts. A
   replay that hands in nothing scored nothing, as a run that is cut off does.
3. Where the environment raises, or knows no score, the replay is missing and
   counted, never a failure. The same actions on the same task are taken once.
4. `hand_in_of` finds where in its actions a run wrote what it handed in: the
   longest common run of words of the submission and an action, the last one
   among equals. It must be at least half of those words of the submission that
   the run wrote anywhere. `saying` is the same run with another text there;
   whether that text decides is told by one that means `NOTHING`: where a run wins
   with it, it does not.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from forensics.case import Rollouts
from forensics.layers.text_words import placed_words, words
from forensics.protocols import Environment
from forensics.records import content_hash

Actions = tuple[str, ...]
COLUMNS = (
    "task",
    "sample",
    "id",
    "outcome",
    "end",
    "submission",
    "steps.list.element.role",
    "steps.list.element.text",
)
NOTHING = "qzx"  # a text that is no answer
WIN = 0.5  # a score from which a run is a win
MOST_WORDS = 600  # of a submission and an action that are compared word by word


@dataclass(frozen=True, kw_only=True)
class PlayedRun:
    """A recorded run: its task, actions, score, and what it handed in. `prompt`:
    what it was asked.
    """

    task: str
    actions: Actions
    score: float
    submission: str | None
    prompt: str

    @property
    def won(self) -> bool:
        return self.score >= WIN


def played_runs(log: Rollouts, tasks: Sequence[str]) -> list[PlayedRun]:
    """The runs of these tasks that have a score, in an order that does not hang
    on the log's.
    """
    wanted = frozenset(tasks)
    rows = [
        row
        for row in log.rows(*COLUMNS)
        if row["task"] in wanted and row["outcome"] is not None and row["end"] != "errored"
    ]
    return [
        PlayedRun(
            task=row["task"],
            actions=tuple(s["text"] for s in row["steps"] if s["role"] == "assistant"),
            score=row["outcome"],
            submission=row["submission"],
            prompt=next((s["text"] for s in row["steps"] if s["role"] == "user"), ""),
        )
        for row in sorted(rows, key=lambda row: (row["task"], row["sample"], row["id"]))
    ]


@dataclass(kw_only=True)
class Replays:
    """Replays in one world. `taken` counts them, `missing` those without a score."""

    world: Environment
    seed: int
    taken: int = 0
    missing: int = 0
    _known: dict[tuple[str, Actions], float | None] = field(default_factory=dict)

    def score(self, task: str, actions: Actions) -> float | None:
        """What these actions score on a task, `None` where it cannot be told."""
        key = task, actions
        if key not in self._known:
            self._known[key] = self._take(task, actions)
            self.taken += 1
            self.missing += self._known[key] is None
        return self._known[key]

    def wins(self, task: str, many: Iterable[Actions]) -> bool | None:
        """Whether any of several does; `None` where none has a score."""
        scores = [score for one in many if (score := self.score(task, one)) is not None]
        return max(scores) >= WIN if scores else None

    @property
    def missing_share(self) -> float:
        return self.missing / max(self.taken, 1)

    def _take(self, task: str, actions: Actions) -> float | None:
        start = int(content_hash(["replay", self.seed, task], 8), 16) % 2**31
        try:
            world = self.world.spawn()
            world.reset(task, start)
            for action in actions:
                result = world.step(action)
                if result.terminated or result.truncated:
                    return result.outcome
        except Exception:  # somebody else's world: a broken replay is data, not a crash
            return None
        return 0.0


@dataclass(frozen=True, kw_only=True)
class HandIn:
    """Where a run wrote what it handed in: characters `start` to `end` of the
    action number `at`.
    """

    run: PlayedRun
    at: int
    start: int
    end: int

    @property
    def text(self) -> str:
        """What was written there."""
        return self.run.actions[self.at][self.start : self.end]

    @property
    def answer(self) -> str:
        """The same, told apart by its words alone."""
        return " ".join(words(self.text))

    def saying(self, text: str) -> Actions:
        """The same run with another text there."""
        actions = list(self.run.actions)
        actions[self.at] = actions[self.at][: self.start] + text + actions[self.at][self.end :]
        return tuple(actions)


def hand_in_of(run: PlayedRun) -> HandIn | None:
    """Where its hand-in stands in its actions, `None` where it does not."""
    wanted = words(run.submission or "")[:MOST_WORDS]
    placed = [placed_words(action)[-MOST_WORDS:] for action in run.actions]
    said = [[word for word, _, _ in action] for action in placed]
    written = sum(word in set().union(*said) for word in wanted)
    best: tuple[int, HandIn] | None = None
    for at in range(len(run.actions) - 1, -1, -1):
        match = SequenceMatcher(None, wanted, said[at], autojunk=False).find_longest_match()
        if 2 * match.size >= max(written, 1) and (best is None or match.size > best[0]):
            start, end = placed[at][match.b][1], placed[at][match.b + match.size - 1][2]
            best = match.size, HandIn(run=run, at=at, start=start, end=end)
    return best and best[1]
