"""In these tests the shapes that signatures state are checked as they run; many share one pair."""

import pytest
from jaxtyping import install_import_hook

from tests.crosscoders import shape_checks

install_import_hook(
    [
        "crosscoders.activations.streams",
        "crosscoders.dictionaries",
        "crosscoders.latents",
        "crosscoders.study.difference_baselines",
        "crosscoders.steering.activation_edits",
        "crosscoders.steering.readings",
    ],
    f"{shape_checks.__name__}.checked",
)


@pytest.fixture(scope="session")
def pair():
    """The planted pair; files with another one have a fixture of their own."""
    from tests.crosscoders.steering_world import world  # not before the hook

    return world()
