"""Activation diffing between two checkpoints: patching, grafting, crosscoders,
steering.

`train_crosscoder(stream, DictionaryConfig(...), TrainerSettings(...))` trains a
sparse dictionary over a stream of paired activations; `diff(before, after,
out=...)` does everything from two checkpoints to a page, `steer` tests what its
latents cause. Names are loaded when
they are first used, so that the commands of this room start without torch.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from crosscoders.activations.harvest import harvest as harvest
    from crosscoders.activations.streams import (
        Block as Block,
        Rows as Rows,
        Stream as Stream,
        TextNote as TextNote,
        difference_view as difference_view,
        texts_of as texts_of,
    )
    from crosscoders.latents.encoded_blocks import quality as quality, spliced as spliced
    from crosscoders.latents.explained import explained as explained, neuronpedia as neuronpedia
    from crosscoders.latents.table import (
        LatentTable as LatentTable,
        SpecificConfig as SpecificConfig,
        came as came,
        latent_table as latent_table,
        presence as presence,
    )
    from crosscoders.patching.decisions import decisions_of as decisions_of
    from crosscoders.patching.maps import graft_map as graft_map, patch_map as patch_map
    from crosscoders.steering.experiment import steer as steer
    from crosscoders.steering.experiment_file import SteeringConfig as SteeringConfig
    from crosscoders.steering.readings import decision_activations as decision_activations
    from crosscoders.study.difference_baselines import principal_components as principal_components
    from crosscoders.study.pipeline import diff as diff

__getattr__, __dir__ = lazy_names(__name__)
