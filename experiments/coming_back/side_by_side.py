"""Dictionaries of a diff at its defaults, from chosen first weights."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crosscoders import Stream
from crosscoders.dictionaries import Dictionary, train_crosscoders
from crosscoders.study.diff_files import DiffRequest
from crosscoders.study.study_dictionaries import PAIR, dictionary_job


def dictionaries(
    stream: Stream, seeds: Sequence[int], tokens: int, folder: Path | None = None, order: int = 1
) -> list[Dictionary]:
    """One from each of these first weights, all on the same batches. `order`: of the stream."""
    request = DiffRequest(before="before", after="after", seed=order, site=stream.site, decisions=0)
    job = dictionary_job(request, PAIR, stream.width, tokens)
    jobs = {
        str(seed): replace(job, settings=replace(job.settings, weights_seed=seed)) for seed in seeds
    }
    trained = train_crosscoders(stream, jobs, folder=folder, resume=True, device="cpu")
    return [trained[name].dictionary for name in jobs]
