"""Linear probes: what a step or a run will do, read off activations, held against the text."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from probes.linear.instrument import alignment as alignment
    from probes.linear.probe_data import (
        collect_activations as collect_activations,
        will_succeed as will_succeed,
        will_use as will_use,
    )
    from probes.linear.probe_evaluation import (
        evaluate_probe as evaluate_probe,
        train_probe as train_probe,
    )

__getattr__, __dir__ = lazy_names(__name__)
