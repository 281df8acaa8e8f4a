"""Numbers of each latent of a dictionary, how good a dictionary is, and the controls that must show nothing."""

from crosscoders.latents.controls import (
    false_discovery,
    null_controls,
    same_pair,
    shuffled_pair,
)
from crosscoders.latents.groups import Contrast, RowGroup, decision_contrast, outcome_contrast
from crosscoders.latents.quality import Quality, quality
from crosscoders.latents.recurrence import recurrence
from crosscoders.latents.scaling import LatentScaling, ScalingConfig, scale_latents
from crosscoders.latents.specific import SpecificConfig, specific
from crosscoders.latents.splicing import SpliceConfig, Spliced, spliced
from crosscoders.latents.table import LatentStudy, LatentTable, TableConfig, latent_table, study_latents
from crosscoders.latents.tops import Tops, top_tokens

__all__ = [
    "Contrast", "LatentScaling", "LatentStudy", "LatentTable", "Quality", "RowGroup", "ScalingConfig", "SpecificConfig",
    "SpliceConfig", "Spliced", "TableConfig", "Tops", "decision_contrast", "false_discovery", "latent_table",
    "null_controls", "outcome_contrast", "quality", "recurrence", "same_pair", "scale_latents", "shuffled_pair",
    "specific", "spliced", "study_latents", "top_tokens",
]
