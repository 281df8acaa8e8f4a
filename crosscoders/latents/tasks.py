"""Tasks as the independent units, in bounded numbers, the same whatever the order of the texts."""

import hashlib
from collections.abc import Sequence

import numpy as np

from crosscoders.activations.streams import TextNote


def ranked_tasks(texts: Sequence[TextNote]) -> dict[str, int]:
    """A place for every task, by the hash of its name: which tasks come first
    says nothing about them.
    """
    names = {text.task for text in texts}
    return {
        name: place
        for place, name in enumerate(sorted(names, key=lambda name: (_hash(name), name)))
    }


def _hash(name: str) -> str:
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


def task_groups(texts: Sequence[TextNote], groups: int) -> np.ndarray:
    """The group `[texts]` of each text's task: one a task up to `groups` of
    them, dealt out evenly beyond.
    """
    places = ranked_tasks(texts)
    return np.array([places[text.task] % groups for text in texts], dtype=np.int64)


def chosen_tasks(texts: Sequence[TextNote], most: int) -> np.ndarray:
    """A number `[texts]` for each text of the first `most` tasks, -1 for the texts of others."""
    places = ranked_tasks(texts)
    return np.array(
        [place if (place := places[text.task]) < most else -1 for text in texts], dtype=np.int64
    )
