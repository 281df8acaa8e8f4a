"""Dictionaries whose weights are set by hand, and streams made from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from crosscoders.activations.streams import Rows, TextNote
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition
from tests.crosscoders.tensor_stream import TensorStream


def random_dictionary(
    partition: Partition, *, seed: int, width: int, models: int = 2
) -> Dictionary:
    """Random weights of order one, a scale, centres, and a ReLU: nothing about it is special."""
    config = DictionaryConfig(
        width=width, partition=partition, models=models, activation="relu", k=4
    )
    dictionary = Dictionary(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 100)
    with torch.no_grad():
        for parameter in dictionary.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        dictionary.bias.sub_(1.0)
        dictionary.scale.fill_(0.7)
    return dictionary


def held(
    activations: torch.Tensor,
    *,
    block: int = 4096,
    tasks: int = 1,
    texts: Sequence[TextNote] | None = None,
) -> TensorStream:
    """A stream of these rows, dealt to `tasks` texts of a task each."""
    number = len(activations)
    rows = Rows.blank(number)
    text = (np.arange(number) * tasks // number).astype(np.int32)
    position = np.arange(number, dtype=np.int32) - np.searchsorted(text, text).astype(np.int32)
    known = {
        **vars(rows),
        "text": text,
        "position": position,
        "token": np.arange(number, dtype=np.int32),
    }
    notes = texts or tuple(TextNote(id=f"text-{i}", task=f"task-{i}") for i in range(tasks))
    return TensorStream(activations=activations, rows=Rows(**known), texts=notes, block=block)


def swapped(dictionary: Dictionary) -> Dictionary:
    """The dictionary of the swapped pair: latent `i` becomes latent `latents -
    1 - i`, before becomes after.
    """
    part = dictionary.config.partition
    turned = Partition(
        latents=part.latents,
        before_only=part.after_only,
        after_only=part.before_only,
        tied=part.tied,
    )
    other = Dictionary(replace(dictionary.config, partition=turned))
    with torch.no_grad():
        for m in range(2):
            other.encoders[m].copy_(dictionary.encoders[1 - m].flip(0))
            other.decoders[m].copy_(dictionary.decoders[1 - m].flip(0))
            other.centres[m] = dictionary.centres[1 - m]
        if other.tied_decoder is not None and dictionary.tied_decoder is not None:
            other.tied_decoder.copy_(dictionary.tied_decoder.flip(0))
        other.bias.copy_(dictionary.bias.flip(0))
        other.threshold.copy_(dictionary.threshold.flip(0))
        other.scale.copy_(dictionary.scale)
    return other


@dataclass(frozen=True, kw_only=True)
class World:
    """Activations from a known dictionary: `features [features, models,
    width]`, `active [rows, features]`.
    """

    stream: TensorStream
    features: torch.Tensor
    active: torch.Tensor


def planted(
    *,
    shared: int,
    before_only: int,
    after_only: int,
    width: int,
    rows: int,
    seed: int,
    noise: float = 0.05,
    chance: float = 0.1,
    tasks: int = 32,
) -> World:
    """Features in the order before-only, shared, after-only, active from 1 to
    2; noise as a share of the variance.
    """
    generator = torch.Generator().manual_seed(seed)
    number = before_only + shared + after_only
    features = torch.nn.functional.normalize(
        torch.randn(number, 1, width, generator=generator), dim=-1
    ).repeat(1, 2, 1)
    features[:before_only, 1] = 0
    features[number - after_only :, 0] = 0
    on = torch.rand(rows, number, generator=generator) < chance
    active = on * (1 + torch.rand(rows, number, generator=generator))
    clean = torch.einsum("rf,fmw->rmw", active, features)
    spread = (noise * clean.var(0).mean()).sqrt()
    noisy = clean + spread * torch.randn(clean.shape, generator=generator)
    return World(stream=held(noisy, tasks=tasks), features=features, active=active)


def oracle(world: World, partition: Partition) -> Dictionary:
    """A dictionary with the world's own decoders, and encoders that read each
    feature by least squares.

    A latent may only read and write the models that the partition lets it; give
    it a partition that claims too much, and latent scaling has something to
    find out.
    """
    config = DictionaryConfig(width=world.stream.width, partition=partition, activation="jumprelu")
    dictionary = Dictionary(config)
    with torch.no_grad():
        for m, seen in enumerate(dictionary.ranges):
            present = world.features[:, m].norm(dim=1) > 0
            inverse = torch.zeros(world.stream.width, len(world.features))
            inverse[:, present] = torch.linalg.pinv(world.features[present, m])
            readers = inverse[:, seen].clone()
            both = _readable(world, partition, seen)
            dictionary.encoders[m].copy_((readers / both).T)
            dictionary.decoders[m].copy_(world.features[dictionary_own(dictionary, m), m])
        if dictionary.tied_decoder is not None:
            dictionary.tied_decoder.copy_(world.features[partition.shared, 0])
        dictionary.bias.zero_()
        dictionary.threshold.fill_(0.5)
    return dictionary


def _readable(world: World, partition: Partition, seen: slice) -> torch.Tensor:
    """How many models a latent is read from, so that the readings are averaged."""
    count = torch.zeros(partition.latents)
    for m in range(2):
        inside = torch.zeros(partition.latents, dtype=torch.bool)
        inside[partition.seen(m, 2)] = True
        count += inside & (world.features[:, m].norm(dim=1) > 0)
    return count[seen].clamp(min=1)


def dictionary_own(dictionary: Dictionary, model: int) -> slice:
    """The latents whose decoder this model does not share."""
    part, seen = dictionary.config.partition, dictionary.ranges[model]
    if not part.tied:
        return seen
    return slice(seen.start, part.before_only) if model == 0 else slice(part.shared.stop, seen.stop)


def mirrored(width: int) -> Dictionary:
    """Latents for both directions of every axis and every model: says everything exactly."""
    part = Partition(latents=4 * width, before_only=2 * width, after_only=2 * width)
    dictionary = Dictionary(DictionaryConfig(width=width, partition=part, activation="relu", k=1))
    both = torch.cat([torch.eye(width), -torch.eye(width)])
    with torch.no_grad():
        for m in range(2):
            dictionary.encoders[m].copy_(both)
            dictionary.decoders[m].copy_(both)
    return dictionary


def silent(width: int, centres: torch.Tensor) -> Dictionary:
    """Always says the centres."""
    dictionary = mirrored(width)
    with torch.no_grad():
        dictionary.bias.fill_(-1e9)
        dictionary.centres.copy_(centres)
    return dictionary
