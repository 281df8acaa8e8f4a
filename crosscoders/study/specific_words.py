"""What is told of the latents that are the after model's own by latent scaling, and how strongly
the before model writes them after all: `specific_latents` lets nu be up to a fifth by one target,
and up to a half by the other.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from crosscoders.latents.table import LatentTable
from forensics.phrases import percent, plural

HARDLY: Final = 0.1  # nu of a latent that is told as missing in the other model
TARGETS: Final = ("nu_after", "nu_after_difference")  # that decide what is specific


def specific_sentence(table: LatentTable, models: int) -> str:
    """`models`: of the dictionary."""
    latents = table.specific("after").tolist()
    if models == 1:
        return (
            "The dictionary has one decoder for both models, so no latent of it can belong to one"
            " of them; nu says how much of it the other model has."
        )
    if not latents:
        return (
            "No latent is specific to the after model by its block and by latent scaling: nothing"
            " new was found."
        )
    dedicated = (table.column("partition") == "after-only").any()
    which = f"{plural(len(latents), 'latent')}{' of the after-only block' if dedicated else ''}"
    there = written_before(table, latents)
    what = "the after model's own" if there else "missing in the before model"
    return f"{which} {_be(len(latents))} {what} by latent scaling{there and f': {there}'}."


def written_before(table: LatentTable, latents: Sequence[int]) -> str:
    """How strongly the before model writes each kind of these latents, by the target whose nu is
    further from 0; empty where it hardly writes any.
    """
    nus = np.stack([table.column(name)[latents] for name in TARGETS])
    told = np.take_along_axis(nus, np.abs(nus).argmax(0)[None], 0)[0]
    parts = []
    for way, amounts in (("", told), ("the opposite way, ", -told)):
        if number := int((amounts > HARDLY).sum()):
            most = int(amounts.argmax())
            strongly = f"up to {percent(float(amounts[most]))} as strongly ({latents[most]})"
            parts.append(f"{number} {_be(number)} written in the before model {way}{strongly}")
    missing = len(latents) - int((np.abs(told) > HARDLY).sum())
    first = [f"{missing} {_be(missing)} missing in the before model"] if missing else []
    return ", ".join([*first, *parts]) if parts else ""


def _be(number: int) -> str:
    return "is" if number == 1 else "are"
