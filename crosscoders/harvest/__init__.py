"""Paired activations of several checkpoints on the same tokens: streamed, or cached on disk."""

from crosscoders.harvest.adapters import adapter_readers
from crosscoders.harvest.cache import CachedStream, cache, cache_sites, cached
from crosscoders.harvest.lenses import bridge_reader, nnsight_reader
from crosscoders.harvest.readers import Reader, read_sites, reader_of
from crosscoders.harvest.stream import Harvest, HarvestConfig, HarvestStream, Which, harvest, harvest_sites
from crosscoders.harvest.texts import Text, plain_text, read_plain, texts_of, texts_of_training

__all__ = [
    "CachedStream", "Harvest", "HarvestConfig", "HarvestStream", "Reader", "Text", "Which", "adapter_readers",
    "bridge_reader", "cache", "cache_sites", "cached", "harvest", "harvest_sites", "nnsight_reader", "plain_text",
    "read_plain", "read_sites", "reader_of", "texts_of", "texts_of_training",
]
