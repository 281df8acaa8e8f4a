"""A log and its policy opened, looked through, and told: commands, tables,
pages, and the instrument of every case.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from resampling.study.cliff_study import (
        CliffStudy as CliffStudy,
        RunsToContinue as RunsToContinue,
        StudyConfig as StudyConfig,
        cliff_pairs as cliff_pairs,
        study_cliffs as study_cliffs,
        token_pair as token_pair,
    )
    from resampling.study.delete_keep import (
        DeleteKeep as DeleteKeep,
        DeleteKeepConfig as DeleteKeepConfig,
        delete_and_keep as delete_and_keep,
    )

__getattr__, __dir__ = lazy_names(__name__)
