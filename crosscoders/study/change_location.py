"""Where the change lives: patching and grafting at decisions, and the site that they choose."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from crosscoders.patching.decisions import Behaviour, Decision, Theme, behaviour_of, decisions_of
from crosscoders.patching.layered import layered_graft_map, layered_patch_map
from crosscoders.patching.maps import graft_map, patch_map
from crosscoders.patching.results import ChangeMap
from crosscoders.patching.site_choice import choose_site
from crosscoders.study.diff_files import AUTO, DEEP_DECISIONS, MOST_DECISIONS, DiffRequest
from crosscoders.study.material import Material, is_small
from forensics.errors import UserError
from forensics.policies import decoder_layers
from forensics.progress import Progress
from forensics.records import content_hash
from forensics.report import plain

HARDLY: Final = 1e-4  # nats of KL at the decisions
SHORTEST: Final = 4  # tokens of a plain text before a place where it is cut


def locate(
    material: Material, request: DiffRequest, theme: Theme | None, progress: Progress
) -> dict[str, Any]:
    """Both maps as plain rows, the site and why. Raises `UserError` where there
    is nothing to patch at.
    """
    before = material.policies[0]
    decisions = _decisions(material, request)
    behaviour = behaviour_of(theme, material.runs)

    patches, grafts = _maps(material, decisions, behaviour, request, progress)
    choice = choose_site(patches, grafts)
    site, sentences = request.site, [choice.sentence]
    if patches.outliers:
        sentences.append(patches.outliers)
    if site == AUTO and choice.site is None:
        site = f"blocks.{(len(decoder_layers(before.model)) - 1) // 2}.hook_resid_post"
        sentences.append(
            f"No site stands out ({choice.reason}), so the dictionary is trained in the middle of"
            " the network."
        )
    return {
        "behaviour": patches.behaviour if choice.measure == "behaviour" else None,
        "decisions": len(decisions),
        "kl": asdict(patches.kl),
        "before": patches.before and asdict(patches.before),
        "after": patches.after and asdict(patches.after),
        "where": choice.where,
        "site": choice.site if site == AUTO else site,
        "sentences": sentences,
        "patch": [row.flat() for row in patches.rows],
        "graft": [row.flat() for row in grafts.rows],
    }


def hardly(location: Mapping[str, Any]) -> list[str]:
    """That there is next to nothing to tell of what `locate` gave, where that is so."""
    kl = location["kl"]["estimate"]
    if kl is None or kl >= HARDLY:
        return []
    chances = [location[side] and location[side]["estimate"] for side in ("before", "after")]
    told = ""
    if location["behaviour"] and None not in chances:
        first, last = (plain(one, 4) for one in chances)
        told = f"; the chance to {location['behaviour']} is {first} before and {last} after"
    return [
        f"The two models hardly differ at the decisions (KL {kl:.1e} nats{told}), so shares of what"
        " training changed are shares of next to nothing."
    ]


def _maps(
    material: Material,
    decisions: Sequence[Decision],
    behaviour: Behaviour | None,
    request: DiffRequest,
    progress: Progress,
) -> tuple[ChangeMap, ChangeMap]:
    """Both maps: of a small network in full, of a deeper one layers first."""
    before, after = material.policies
    kept = request.keep_outliers
    if not is_small(before.model):
        asked: dict[str, Any] = {"behaviour": behaviour, "progress": progress}
        return (
            layered_patch_map(before, after, decisions, keep_outliers=kept, **asked),
            layered_graft_map(before, after, decisions, **asked),
        )

    def hear(what: str) -> Progress:
        return lambda _, done, of: progress(what, done, of)

    return (
        patch_map(
            before,
            after,
            decisions,
            behaviour=behaviour,
            keep_outliers=kept,
            progress=hear("patching activations"),
        ),
        graft_map(before, after, decisions, behaviour=behaviour, progress=hear("grafting weights")),
    )


def _decisions(material: Material, request: DiffRequest) -> tuple[Decision, ...]:
    """First decisions of runs, or cuts of plain texts; one a task, of as many
    tasks as were asked for.
    """
    found = decisions_of(material.runs)
    if not material.runs:  # plain texts, each cut at a place drawn at random
        random = np.random.default_rng(request.seed)
        found = tuple(
            Decision(
                token_ids=tuple(text.token_ids[: random.integers(SHORTEST, len(text))].tolist()),
                task=text.note.task,
            )
            for text in material.texts
            if len(text) > SHORTEST
        )
    by_task = {decision.task: decision for decision in reversed(found)}
    ordered = sorted(by_task, key=lambda task: content_hash([request.seed, "decisions", task]))
    if len(ordered) < 2:
        raise UserError(
            "patching needs decisions of at least two tasks; give more runs or texts, or name a"
            " --site and use --decisions 0"
        )
    number = request.decisions
    if number is None:
        small = is_small(material.policies[0].model)
        number = MOST_DECISIONS if small else DEEP_DECISIONS
    return tuple(by_task[task] for task in ordered[:number])
