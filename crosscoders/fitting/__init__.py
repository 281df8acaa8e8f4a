"""Training of dictionaries on a stream, several at once, and the baselines that stand beside them."""

from crosscoders.fitting.baselines import difference, difference_view, mean_difference, principal_parts
from crosscoders.fitting.loop import Fitted, Progress, fit_many, train_crosscoder
from crosscoders.fitting.settings import FittingSettings
from crosscoders.fitting.trainee import Job

__all__ = [
    "Fitted", "FittingSettings", "Job", "Progress", "difference", "difference_view", "fit_many", "mean_difference",
    "principal_parts", "train_crosscoder",
]
