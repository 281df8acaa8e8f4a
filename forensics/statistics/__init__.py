"""Estimates with honest intervals. The independent unit is the task and the training seed, never the rollout."""

from forensics.statistics.attribution import first_and_last_weights, shapley_weights
from forensics.statistics.multiplicity import benjamini_hochberg, e_benjamini_hochberg
from forensics.statistics.paired import ContrastEstimate, crossed_half_width, estimate_contrast, t_quantile
from forensics.statistics.permutation import jensen_shannon, permutation_test, sign_flip_test
from forensics.statistics.shares import Share, clopper_pearson, clustered_share
from forensics.statistics.unpaired import MeanDifference, difference_of_means

__all__ = [
    "ContrastEstimate", "MeanDifference", "Share", "benjamini_hochberg", "clopper_pearson", "clustered_share",
    "crossed_half_width", "difference_of_means", "e_benjamini_hochberg", "estimate_contrast", "first_and_last_weights",
    "jensen_shannon", "permutation_test", "shapley_weights", "sign_flip_test", "t_quantile",
]
