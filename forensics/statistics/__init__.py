"""Estimates with honest intervals. The independent unit is the task and the
training seed, never the rollout.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names
from forensics.statistics import evalues
from forensics.statistics.intervals import (
    Contrast,
    Estimate,
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
    too_few,
    unpaired,
)
from forensics.statistics.permutation import (
    benjamini_hochberg,
    e_benjamini_hochberg,
    permutation_test,
    sign_flip_test,
)
from forensics.statistics.rank_statistics import (
    auroc,
    auroc_columns,
    auroc_difference,
    auroc_sparse,
)

if TYPE_CHECKING:
    from forensics.statistics.evalues import (
        LEVELS as LEVELS,
        difference_interval as difference_interval,
        flat_weights as flat_weights,
        grid_means as grid_means,
        log_e_values as log_e_values,
    )

__getattr__, _ = lazy_names(__name__)

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
    "difference_of_shares",
    "e_benjamini_hochberg",
    "evalues",
    "largest",
    "mean",
    "paired",
    "permutation_test",
    "ratio",
    "share",
    "share_by_task",
    "sign_flip_test",
    "t_quantile",
    "too_few",
    "unpaired",
]
