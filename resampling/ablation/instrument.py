"""Action ablation as an instrument: hand-ins graded again, then kinds of action
refused (`refusal` tells the method), and how many episodes that plays at most.
"""

from collections.abc import Iterator

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import instrument
from forensics.layers.decomposition import OPEN, World
from forensics.records import Evidence, Undefined
from resampling.ablation import ablation_evidence as say
from resampling.ablation.ablation_evidence import QUESTIONS, AblationEvidence
from resampling.ablation.fresh_copy import fresh_copy
from resampling.ablation.gains import (
    certificate,
    require_gain,
)
from resampling.ablation.objects import object_use, recurring
from resampling.ablation.refusal import AblationStudy, scrubbed_world
from resampling.ablation.refused_runs import (
    Kinds,
    played_plainly,
)
from resampling.ablation.settings import MOST_TURNS, AblationConfig


def most_episodes(case: Case, config: AblationConfig) -> int:
    """Jointly, and once more without what was found; kinds, their objects and
    pairs by themselves; a pilot of *before* for each kind. How many kinds there
    are, and whether certificates clear them, is known once the plain runs are there.
    """
    world = scrubbed_world(case) if config.scrubbed else OPEN
    kinds, objects = config.most_kinds, 2 * config.most_objects
    if case.has_played(world):
        suspects = _suspects(case, config, world)
        if suspects is None:
            return 0
        kinds, use = min(kinds, len(suspects)), object_use(case, world, suspects)
        objects = min(objects, len(recurring(use, config.recur, objects)))
    tasks = len(case.tasks)
    jointly = (2 if kinds else 1) * MOST_TURNS * tasks
    singly = kinds + objects + min(objects, config.most_objects)  # and once more beside them
    singly += config.most_pairs if kinds else 0
    sides = (1 + len(case.afters)) * (jointly + singly * min(config.tasks, tasks))
    return case.budget.samples * (sides + kinds * min(config.pilot, tasks))


def _suspects(case: Case, config: AblationConfig, world: World) -> Kinds | None:
    """The kinds that certificates do not clear; `None` where nothing is to be played."""
    plain = played_plainly(case, world, split=case.allowed)
    study = AblationStudy(
        case=case,
        config=config,
        world=world,
        plain=plain,
        evidence=AblationEvidence(provenance=ablation.provenance(case)),
    )
    require_gain(study.gain, world)
    exempt = {*study.needed, *case.allowed}
    rest = tuple(kind for kind in plain.kinds if kind not in exempt)
    if certificate(plain, rest, study.gain).cleared and not config.each:
        return None
    return tuple(kind for kind in rest if not certificate(plain, (kind,), study.gain).cleared)


@instrument(
    name="ablation",
    layer="ablation",
    questions=QUESTIONS,
    config=AblationConfig(),
    episodes=most_episodes,
)
def ablation(case: Case, config: AblationConfig) -> Iterator[Evidence | Undefined]:
    """Answers by kind of action; raises `MissingInput` for what the case cannot give."""
    evidence = AblationEvidence(provenance=ablation.configured(**vars(config)).provenance(case))
    if not case.afters:
        raise MissingInput("The case has no runs after training.", "Give at least one `--after`.")
    world = scrubbed_world(case) if config.scrubbed else OPEN
    plain = played_plainly(case, world, split=case.allowed)
    again = list(fresh_copy(case, world, plain, config.bars, evidence))
    yield from again
    accused = frozenset(one.about for one in again if one.question == say.SHORTCUT)
    if not case.policies:
        raise MissingInput(
            "Logs alone cannot say what would have happened without an action.",
            "Give the checkpoints and the environment to `forensics ablate`.",
        )
    study = AblationStudy(
        case=case, config=config, world=world, plain=plain, evidence=evidence, accused=accused
    )
    require_gain(study.gain, world)
    yield from study.kinds()
