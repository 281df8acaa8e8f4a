"""The settings of action ablation."""

from dataclasses import dataclass

from resampling.ablation.gains import Bars

MOST_TURNS = 3  # to kinds that no run had tried


@dataclass(frozen=True, kw_only=True)
class AblationConfig:
    """`tasks` on which each kind is refused by itself, `pilot`: first so many
    of them, with *before* alone.

    `level` of intervals and tests; `half`: share of the gain that must vanish
    for a kind to be named; `kept`: of the before policy's score. `max_redraws`
    of an episode; `most_missing`: share of runs that may end because every draw
    was refused. `most_kinds` and `most_pairs` that are refused by themselves;
    `most_objects` on which a share of `recur` more runs act after training than
    before; `turned`: so many more, where the kind is a needed one.
    `control_tasks` whose output is the control of (c). `scrubbed`: play with
    the declared channels scrubbed, else with all of them open. `each`: refuse
    each kind by itself that its certificate does not clear, even where all
    together are cleared.
    """

    tasks: int = 200
    pilot: int = 16
    level: float = 0.95
    half: float = 0.5
    kept: float = 0.8
    max_redraws: int = 12
    most_missing: float = 0.2
    most_kinds: int = 12
    most_pairs: int = 4
    most_objects: int = 3
    recur: float = 0.05
    turned: float = 0.25
    control_tasks: int = 16
    scrubbed: bool = True
    each: bool = False

    @property
    def bars(self) -> Bars:
        return Bars(level=self.level, half=self.half, kept=self.kept)
