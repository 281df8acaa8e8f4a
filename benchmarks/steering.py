"""Acting under an intervention: episodes a second unsteered, with our hooks,
and with a second model reading along.

The world is the embedded one, the policies the bundled base and leak. The three
run in turn in one process; what is compared is seconds of the processor on a
CPU (other work on the machine disturbs them less), of the clock on a GPU. A
pass of the second model up to the site costs at most its share of the layers,
so hooks alone are the bound.
"""

import statistics
import time
from typing import Any

SITE, TASKS, SAMPLES = "blocks.1.hook_resid_post", 64, 4


def run(device: str = "cpu", repeats: int = 3) -> dict[str, Any]:
    """Episodes a second of each way, and both ways' share of the plain rate."""
    import torch

    from crosscoders.steering.edits import shift_change, subspace_change
    from crosscoders.steering.interventions import (
        Seen,
        intervention,
        parse_position,
        policy_alongside,
    )
    from forensics import load_policy
    from forensics.protocols import SamplingSettings
    from training import MiniRepo, checkpoint_path

    world = MiniRepo(world="capped")
    before, after = (
        load_policy(checkpoint_path(f"bundled:{name}"), device=device)
        for name in ("capped-base", "leak")
    )
    tasks = world.tasks("held-out", TASKS, 0)
    width = after.model.config.hidden_size
    changes = {
        "hooks": shift_change(torch.zeros(width), mode="add", strength=1.0),
        "reading along": subspace_change(
            torch.eye(width)[:4], mode="ablate", acting="after", strength=0.0
        ),
    }

    def seconds(way: str) -> float:
        policy, steered = after, []
        if way != "plain":
            seen, change = Seen(), changes[way].to(device)
            policy = policy_alongside(after, before if change.needs_other else None, SITE, seen)
            steered = [
                intervention(
                    change, site=SITE, name=way, position=parse_position("deciding"), seen=seen
                )
            ]
        clock = time.process_time if device == "cpu" else time.perf_counter
        start = clock()
        list(policy.play(world, tasks, SAMPLES, SamplingSettings(), 1, interventions=steered))
        return clock() - start

    ways = ("plain", *changes)
    seconds("plain")
    taken = [{way: seconds(way) for way in ways} for _ in range(repeats)]
    return {
        "benchmark": f"{TASKS * SAMPLES} episodes of mini-repo under an intervention at decisions",
        "episodes_per_second": {
            way: TASKS * SAMPLES / statistics.median(one[way] for one in taken) for way in ways
        },
        "share_of_plain": {
            way: statistics.median(one["plain"] / one[way] for one in taken) for way in changes
        },
    }
