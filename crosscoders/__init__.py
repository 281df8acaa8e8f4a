"""Activation diffing between two checkpoints: patching, grafting, crosscoders,
steering.

`train_crosscoder(stream, DictionaryConfig(...), TrainerSettings(...))` trains a
sparse dictionary over a stream of paired activations; `diff(before, after,
out=...)` does everything from two checkpoints to a page. Names are loaded when
they are first used, so that the commands of this room start without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscoders.activations.harvest_stream import harvest
    from crosscoders.activations.streams import difference
    from crosscoders.activations.texts import texts_of
    from crosscoders.dictionaries.crosscoder_trainer import TrainingJob
    from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
    from crosscoders.dictionaries.partition import Partition
    from crosscoders.dictionaries.saelens import export_saelens, load_saelens
    from crosscoders.dictionaries.saved import load_dictionary, save_dictionary
    from crosscoders.dictionaries.settings import TrainerSettings
    from crosscoders.dictionaries.training_run import train_crosscoder, train_crosscoders
    from crosscoders.latents.reconstruction import quality, spliced
    from crosscoders.latents.table import latent_table
    from crosscoders.moments import principal_components
    from crosscoders.patching.maps import graft_map, patch_map
    from crosscoders.study.pipeline import diff

_HOME = {
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
}
__all__ = [
    "Dictionary",
    "DictionaryConfig",
    "Partition",
    "TrainerSettings",
    "TrainingJob",
    "diff",
    "difference",
    "export_saelens",
    "graft_map",
    "harvest",
    "latent_table",
    "load_dictionary",
    "load_saelens",
    "patch_map",
    "principal_components",
    "quality",
    "save_dictionary",
    "spliced",
    "texts_of",
    "train_crosscoder",
    "train_crosscoders",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'crosscoders' has no attribute '{name}'")
    return getattr(import_module(f"crosscoders.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
