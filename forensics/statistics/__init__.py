"""Estimates with honest intervals. The independent unit is the task and the
training seed, never the rollout.
"""

from forensics.statistics.auroc import auroc, auroc_columns, auroc_difference, auroc_sparse
from forensics.statistics.estimate import Estimate
from forensics.statistics.evalues import difference_interval, flat_weights, log_e_values
from forensics.statistics.intervals import (
    Contrast,
    MeanDifference,
    binomial,
    clopper_pearson,
    crossed_half_width,
    difference_of_shares,
    largest,
    mean,
    paired,
    ratio,
    share,
    share_by_task,
    t_quantile,
    unpaired,
)
from forensics.statistics.permutation import (
    benjamini_hochberg,
    e_benjamini_hochberg,
    jensen_shannon,
    permutation_test,
    sign_flip_test,
)
from forensics.statistics.shapley import first_and_last_weights, shapley_weights

__all__ = [
    "Contrast",
    "Estimate",
    "MeanDifference",
    "auroc",
    "auroc_columns",
    "auroc_difference",
    "auroc_sparse",
    "benjamini_hochberg",
    "binomial",
    "clopper_pearson",
    "crossed_half_width",
    "difference_interval",
    "difference_of_shares",
    "e_benjamini_hochberg",
    "first_and_last_weights",
    "flat_weights",
    "jensen_shannon",
    "largest",
    "log_e_values",
    "mean",
    "paired",
    "permutation_test",
    "ratio",
    "shapley_weights",
    "share",
    "share_by_task",
    "sign_flip_test",
    "t_quantile",
    "unpaired",
]
