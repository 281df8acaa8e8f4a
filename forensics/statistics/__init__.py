"""Estimates with honest intervals. The independent unit is the task and the
training seed, never the rollout.
"""

from forensics.statistics.auroc import auroc, auroc_difference
from forensics.statistics.estimate import Estimate
from forensics.statistics.intervals import (
    Contrast,
    MeanDifference,
    binomial,
    clopper_pearson,
    crossed_half_width,
    mean,
    paired,
    ratio,
    share,
    share_by_task,
    t_quantile,
    unpaired,
)
from forensics.statistics.permutation import benjamini_hochberg, permutation_test, sign_flip_test

__all__ = [
    "Contrast",
    "Estimate",
    "MeanDifference",
    "auroc",
    "auroc_difference",
    "benjamini_hochberg",
    "binomial",
    "clopper_pearson",
    "crossed_half_width",
    "mean",
    "paired",
    "permutation_test",
    "ratio",
    "share",
    "share_by_task",
    "sign_flip_test",
    "t_quantile",
    "unpaired",
]
