"""Sparse dictionaries over activations: what they are, their training, saved ones."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from crosscoders.dictionaries.crosscoder_run import (
        MemoryPlan as MemoryPlan,
        memory_plan as memory_plan,
        train_crosscoder as train_crosscoder,
        train_crosscoders as train_crosscoders,
    )
    from crosscoders.dictionaries.crosscoder_trainer import TrainingJob as TrainingJob
    from crosscoders.dictionaries.dictionary import (
        Dictionary as Dictionary,
        DictionaryConfig as DictionaryConfig,
    )
    from crosscoders.dictionaries.saelens import (
        export_saelens as export_saelens,
        load_saelens as load_saelens,
    )
    from crosscoders.dictionaries.saved import (
        dictionary_key as dictionary_key,
        load_dictionary as load_dictionary,
        save_dictionary as save_dictionary,
    )
    from crosscoders.dictionaries.settings import (
        Partition as Partition,
        TrainerSettings as TrainerSettings,
    )

__getattr__, __dir__ = lazy_names(__name__)
