"""Estimates with honest intervals. The independent unit is the task and the
training seed, never the rollout.
"""

from forensics.statistics.estimate import Estimate
from forensics.statistics.intervals import (
    Contrast,
    MeanDifference,
    clopper_pearson,
    clustered_share,
    crossed_half_width,
    difference_of_means,
    estimate_contrast,
    share_by_task,
    t_quantile,
)
from forensics.statistics.permutation import (
    benjamini_hochberg,
    e_benjamini_hochberg,
    jensen_shannon,
    permutation_test,
    sign_flip_test,
)
from forensics.statistics.shapley import first_and_last_weights, shapley_weights

Contrast = Contrast
Share = Estimate

__all__ = [
    "Contrast",
    "Estimate",
    "MeanDifference",
    "benjamini_hochberg",
    "clopper_pearson",
    "clustered_share",
    "crossed_half_width",
    "difference_of_means",
    "e_benjamini_hochberg",
    "estimate_contrast",
    "first_and_last_weights",
    "jensen_shannon",
    "permutation_test",
    "shapley_weights",
    "share_by_task",
    "sign_flip_test",
    "t_quantile",
]
