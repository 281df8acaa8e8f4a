"""One question, measured whole: the probe, its simpler rival, and the transfer from before training.

1. The probe on held-out tasks, with its text baselines and shuffled labels (`evaluating`).
2. The difference of means through the same splits.
3. A probe fitted to the first checkpoint's own runs and activations, read on those of the last.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from forensics.errors import MissingInput, UserError
from probes.linear.evaluating import Evaluation, ProbeConfig, evaluate_probe
from probes.linear.readings import Readings


@dataclass(frozen=True, kw_only=True)
class Measured:
    """`moved`: the transfer; `None` where it cannot be had, and `unmoved` says why.

    `unread`: steps that the question asked about and that could not be read.
    """

    found: Evaluation
    plain: Evaluation
    moved: Evaluation | None
    unmoved: str | None
    unread: int = 0

    @property
    def best_text(self) -> str:
        """The name of the text baseline with the highest AUROC."""
        return max(self.found.baselines, key=lambda name: self.found.baselines[name].auroc.estimate)


def measure(after: Readings, before: Callable[[], Readings], config: ProbeConfig) -> Measured:
    """`before`: reads the first checkpoint, where that can be. Raises as `evaluate_probe` does on `after`."""
    found = evaluate_probe(after, config=config)
    plain = evaluate_probe(after, config=replace(config, method="difference", shuffles=0))
    try:
        moved = evaluate_probe(before(), after, replace(config, shuffles=0))
    except (MissingInput, UserError) as error:
        why = error.reason if isinstance(error, MissingInput) else f"{error}."
        return Measured(found=found, plain=plain, moved=None, unmoved=why, unread=after.unread)
    return Measured(found=found, plain=plain, moved=moved, unmoved=None, unread=after.unread)
