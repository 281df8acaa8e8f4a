"""In these tests the shapes that signatures state are checked as they run."""

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
