"""A second model reading along is exact, and positions are found live."""

import numpy as np
import pytest
import torch

from crosscoders.steering.interventions import (
    Seen,
    Steps,
    chosen_positions,
    intervention,
    parse_position,
    policy_alongside,
)
from forensics import load_policy
from forensics.protocols import Intervention, SamplingSettings
from forensics.records.trajectory import action_starts
from tests.crosscoders.steering_world import shift_change
from training.environments.mini_repo import MiniRepo
from training.organisms.organism import checkpoint_path

SITE = "blocks.1.hook_resid_post"
SITES = (
    "hook_embed",
    "blocks.0.hook_resid_pre",
    "blocks.1.hook_attn_out",
    "blocks.2.hook_mlp_out",
    SITE,
)
SETTINGS = SamplingSettings()


@pytest.fixture(scope="module")
def pair():
    return tuple(
        load_policy(checkpoint_path(f"bundled:{name}"), device="cpu", dtype="float32")
        for name in ("capped-base", "leak")
    )


@pytest.fixture(scope="module")
def world():
    return MiniRepo(world="capped")


def texts(runs):
    return [[step.text for step in run.steps] for run in runs]


@pytest.mark.parametrize("site", SITES)
def test_the_companion_reads_the_same_tokens_exactly(pair, world, site: str) -> None:
    """At every step, however rows were forked, moved and dropped, its
    activations are those of a plain pass.
    """
    before, after = pair
    seen = Seen()
    watched: list[tuple[torch.Tensor, torch.Tensor]] = []

    def watch(activations, context):
        watched.append((seen.ids.clone(), seen.other.clone()))
        return activations

    beside = policy_alongside(after, before, site, seen)
    tasks = world.tasks("held-out", 12, 0)
    look = Intervention(site=site, name="look", apply=watch)
    runs = list(beside.play(world, tasks, 3, SETTINGS, 5, interventions=[look]))
    assert texts(runs) == texts(
        after.play(world, tasks, 3, SETTINGS, 5)
    )  # and nothing is changed by it
    assert len({len(ids) for ids, _ in watched}) > 1, "rows were forked or dropped"
    for ids, other in watched[:: max(1, len(watched) // 8)]:
        for row in (0, len(ids) - 1):
            alone = before.activations([ids[row].tolist()], [site])[0][site]
            assert np.allclose(alone[-other.shape[1] :], other[row].numpy(), atol=2e-5)


def test_a_model_beside_itself_and_strength_zero_change_nothing(pair, world) -> None:
    before, after = pair
    seen = Seen()
    beside = policy_alongside(after, before, SITE, seen)
    nothing = intervention(
        shift_change(torch.ones(96), mode="add", strength=0.0),
        site=SITE,
        name="none",
        position=parse_position("everywhere"),
        seen=seen,
    )
    tasks = world.tasks("held-out", 12, 1)
    assert texts(beside.play(world, tasks, 2, SETTINGS, 5, interventions=[nothing])) == texts(
        after.play(world, tasks, 2, SETTINGS, 5)
    )


@pytest.mark.parametrize("at", ["deciding", "kind:history", "kind:test"])
def test_positions_while_acting_are_those_read_off_the_run(pair, world, at: str) -> None:
    """What an intervention chose token by token, against the same rule on the finished texts."""
    _, after = pair
    position, seen = parse_position(at), Seen()
    renderer = after.rendered_for(world).renderer
    steps = Steps(
        kinds=lambda ids: world.kinds(renderer.action_text(ids)),
        stops=renderer.stops,
        most=SETTINGS.max_turn_tokens,
    )
    chosen: set[tuple[int, ...]] = set()

    def note(activations, context):
        ids, decided = seen.text()
        decided[:, -1] |= context.deciding
        mask = chosen_positions(position, steps, ids, decided, activations.shape[1])
        for row, at in mask.nonzero().tolist():
            chosen.add(tuple(ids[row, : ids.shape[1] - mask.shape[1] + at + 1].tolist()))
        return activations

    beside = policy_alongside(after, None, SITE, seen)
    noting = Intervention(site=SITE, name="note", apply=note)
    wanted: set[tuple[int, ...]] = set()
    for run in list(
        beside.play(world, world.tasks("held-out", 10, 2), 2, SETTINGS, 3, interventions=[noting])
    ):
        ids = [token for step in run.steps for token in step.token_ids or ()]
        starts = [start - 1 for start in action_starts(run)]
        decided = torch.zeros((1, len(ids)), dtype=torch.bool)
        decided[0, starts] = True
        mask = chosen_positions(position, steps, torch.tensor([ids]), decided, len(ids))[0]
        ended = 1 if ids[-1] in renderer.stops else 0  # the last token drawn is never read
        wanted |= {
            tuple(ids[: i + 1]) for i in mask.nonzero()[:, 0].tolist() if i < len(ids) - ended
        }
    assert chosen == wanted and len(chosen) > 10
