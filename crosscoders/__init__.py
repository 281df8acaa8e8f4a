"""Activation diffing between two checkpoints: patching, grafting, crosscoders,
steering.

`train_crosscoder(stream, DictionaryConfig(...), TrainerSettings(...))` trains a
sparse dictionary over a stream of paired activations; `diff(before, after,
out=...)` does everything from two checkpoints to a page. Names are loaded when
they are first used, so that the commands of this room start without torch.
"""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from crosscoders.activations.harvest_stream import harvest as harvest
    from crosscoders.activations.streams import difference as difference
    from crosscoders.activations.texts import texts_of as texts_of
    from crosscoders.dictionaries.crosscoder_trainer import TrainingJob as TrainingJob
    from crosscoders.dictionaries.dictionary import Dictionary as Dictionary
    from crosscoders.dictionaries.dictionary import DictionaryConfig as DictionaryConfig
    from crosscoders.dictionaries.partition import Partition as Partition
    from crosscoders.dictionaries.saelens import export_saelens as export_saelens
    from crosscoders.dictionaries.saelens import load_saelens as load_saelens
    from crosscoders.dictionaries.saved import load_dictionary as load_dictionary
    from crosscoders.dictionaries.saved import save_dictionary as save_dictionary
    from crosscoders.dictionaries.settings import TrainerSettings as TrainerSettings
    from crosscoders.dictionaries.training_run import train_crosscoder as train_crosscoder
    from crosscoders.dictionaries.training_run import train_crosscoders as train_crosscoders
    from crosscoders.latents.reconstruction import quality as quality
    from crosscoders.latents.reconstruction import spliced as spliced
    from crosscoders.latents.table import latent_table as latent_table
    from crosscoders.moments import principal_components as principal_components
    from crosscoders.patching.maps import graft_map as graft_map
    from crosscoders.patching.maps import patch_map as patch_map
    from crosscoders.study.pipeline import diff as diff

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Dictionary": "dictionaries.dictionary",
        "DictionaryConfig": "dictionaries.dictionary",
        "Partition": "dictionaries.partition",
        "TrainerSettings": "dictionaries.settings",
        "TrainingJob": "dictionaries.crosscoder_trainer",
        "diff": "study.pipeline",
        "difference": "activations.streams",
        "export_saelens": "dictionaries.saelens",
        "graft_map": "patching.maps",
        "harvest": "activations.harvest_stream",
        "latent_table": "latents.table",
        "load_dictionary": "dictionaries.saved",
        "load_saelens": "dictionaries.saelens",
        "patch_map": "patching.maps",
        "principal_components": "moments",
        "quality": "latents.reconstruction",
        "save_dictionary": "dictionaries.saved",
        "spliced": "latents.reconstruction",
        "texts_of": "activations.texts",
        "train_crosscoder": "dictionaries.training_run",
        "train_crosscoders": "dictionaries.training_run",
    },
)
