"""The sparse path, the dense path and direct formulas in double precision: same
values, same gradients.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from crosscoders.activation_functions.builtin import batch_topk, smallest_kept
from crosscoders.dictionaries.crosscoder_trainer import (
    Trainer,
    TrainingJob,
    aux_loss,
    forward,
    training_step,
)
from crosscoders.dictionaries.dictionary import Dictionary, DictionaryConfig
from crosscoders.dictionaries.settings import Partition, TrainerSettings

PARTITIONS = {
    "plain": Partition(latents=40),
    "dedicated": Partition(latents=40, before_only=6, after_only=9),
    "tied": Partition(latents=40, before_only=6, after_only=9, tied=True),
    "tied, none before": Partition(latents=40, after_only=9, tied=True),
    "reading all": Partition(latents=40, before_only=6, after_only=9, tied=True, readers="all"),
}
ACTIVATIONS = ("relu", "topk", "batchtopk", "jumprelu")
ROWS, WIDTH, K, BANDWIDTH = 24, 10, 5, 0.3


def _dictionary(partition: Partition, activation: str) -> tuple[Dictionary, torch.Tensor | None]:
    config = DictionaryConfig(width=WIDTH, partition=partition, activation=activation, k=K)
    dictionary = Dictionary(config, seed=1).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in dictionary.parameters():
            parameter += 0.2 * torch.randn(
                parameter.shape, generator=generator, dtype=torch.float64
            )
    if activation != "jumprelu":
        return dictionary, None
    start = torch.rand(partition.latents, generator=generator, dtype=torch.float64).add(0.2).log()
    return dictionary, start.requires_grad_()


def _rows() -> torch.Tensor:
    return torch.randn(
        (ROWS, 2, WIDTH), generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )


def _loss_and_gradients(
    dictionary: Dictionary, log_threshold: torch.Tensor | None, path: str
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    step = training_step(
        dictionary,
        TrainerSettings(bandwidth=BANDWIDTH),
        parameters={} if log_threshold is None else {"log_threshold": log_threshold},
    )
    result = forward(dictionary, _rows(), step, path=path)
    return _gradients(
        result.errors.square().sum() / ROWS + 0.7 * result.penalty, dictionary, log_threshold
    )


def _gradients(
    loss: torch.Tensor, dictionary: Dictionary, log_threshold: torch.Tensor | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    named = dict(dictionary.named_parameters())
    if log_threshold is not None:
        named["log_threshold"] = log_threshold
    found = torch.autograd.grad(
        loss, list(named.values()), allow_unused=True, materialize_grads=True
    )
    return loss.detach(), dict(zip(named, found, strict=True))


def _direct(
    dictionary: Dictionary, log_threshold: torch.Tensor | None
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Everything dense, with the forbidden blocks written out as zeros, from
    the formulas of the papers.
    """
    part, latents = dictionary.config.partition, dictionary.config.partition.latents
    encoder = torch.zeros((2, latents, WIDTH), dtype=torch.float64)
    decoder = torch.zeros((2, latents, WIDTH), dtype=torch.float64)
    for m, seen in enumerate(
        (slice(0, latents - part.after_only), slice(part.before_only, latents))
    ):
        indices = torch.arange(seen.start, seen.stop)
        readers = torch.arange(latents) if part.readers == "all" else indices
        encoder = encoder.index_put((torch.tensor(m), readers), dictionary.encoders[m])
        decoder = decoder.index_put((torch.tensor(m), indices), dictionary.decoder(m))
    rows = _rows()
    pre = torch.einsum("rmw,mlw->rl", rows - dictionary.centres, encoder) + dictionary.bias
    penalty = torch.zeros(1, dtype=torch.float64)
    activation = dictionary.config.activation
    if activation == "relu":
        value = pre.clamp(min=0)
        penalty = (value * decoder.norm(dim=-1).sum(0)).sum() / ROWS
    elif activation == "topk":
        value = torch.where(
            pre >= pre.sort(dim=1, descending=True).values[:, K - 1 : K], pre, 0.0
        ).clamp(min=0)
    elif activation == "batchtopk":
        value = torch.where(
            pre >= pre.flatten().sort(descending=True).values[K * ROWS - 1], pre, 0.0
        ).clamp(min=0)
    else:
        value, penalty = _jump(pre, log_threshold)
    errors = torch.einsum("rl,mlw->rmw", value, decoder) + dictionary.centres - rows
    return _gradients(errors.square().sum() / ROWS + 0.7 * penalty.sum(), dictionary, log_threshold)


def _jump(pre: torch.Tensor, log_threshold: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Value and count whose gradients are the paper's pseudo-derivatives, by
    adding terms that are zero.

    2407.14435, equations 11 and 12: dJump/dt = -t/e K((z-t)/e), dH/dt = -1/e
    K((z-t)/e), K one on (-1/2, 1/2).
    """
    threshold = log_threshold.exp()
    active = (pre > threshold).double().detach()
    kernel = (((pre - threshold) / BANDWIDTH).abs() < 0.5).double().detach()
    nothing = threshold - threshold.detach()
    value = pre * active - threshold.detach() / BANDWIDTH * kernel * nothing
    count = active - kernel / BANDWIDTH * nothing
    return value, count.sum() / ROWS


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("path", ["sparse", "dense"])
def test_both_paths_give_the_values_and_gradients_of_the_formulas(
    activation: str, partition: str, path: str
) -> None:
    dictionary, log_threshold = _dictionary(PARTITIONS[partition], activation)
    loss, gradients = _loss_and_gradients(dictionary, log_threshold, path)
    expected_loss, expected = _direct(dictionary, log_threshold)
    torch.testing.assert_close(loss, expected_loss, rtol=1e-12, atol=1e-12)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-10, atol=1e-12, msg=name)
    assert all(
        float(gradient.abs().max()) > 0 for name, gradient in gradients.items() if gradient.numel()
    )


@pytest.mark.parametrize("activation", ["relu", "batchtopk"])  # dense, sparse
def test_in_half_precision_every_large_product_is_rounded_and_no_weight(activation: str) -> None:
    config = DictionaryConfig(
        width=WIDTH, partition=PARTITIONS["dedicated"], activation=activation, k=K
    )
    dictionary, rows = Dictionary(config, seed=1), _rows().float()
    found = []
    for precision in ("float32", "bfloat16"):
        step = training_step(dictionary, TrainerSettings(precision=precision))
        with _products() as seen:
            result = forward(dictionary, rows, step)
            _, gradients = _gradients(
                result.errors.square().mean() + 0.01 * result.penalty, dictionary, None
            )
        assert seen == {getattr(torch, precision)}
        assert all(gradient.dtype == torch.float32 for gradient in gradients.values())
        found.append(torch.cat([one.flatten() for one in gradients.values()]))
    exact, rounded = found
    assert 1e-4 < float((exact - rounded).norm() / exact.norm()) < 0.15


@contextmanager
def _products() -> Iterator[set[torch.dtype]]:
    """The types of all tables of more than one row that are multiplied meanwhile."""
    seen: set[torch.dtype] = set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, called: Any, types: Any, given: Any = (), named: Any = None):  # type: ignore[no-untyped-def]
            name = called.overloadpacket.__name__
            if name in ("mm", "addmm", "addmm_", "bmm", "mv", "_embedding_bag", "_sampled_addmm"):
                tables = [one for one in given if torch.is_tensor(one) and one.is_floating_point()]
                seen.update(table.dtype for table in tables if table.dim() > 1)
            return called(*given, **(named or {}))

    with Watch():
        yield seen


def test_a_training_in_half_precision_explains_as_much() -> None:
    """Equal steps on planted rows; weights and moments stay float32."""
    known = torch.nn.functional.normalize(
        torch.randn((24, 2 * 16), generator=torch.Generator().manual_seed(0)), dim=-1
    )
    explained = []
    for precision in ("float32", "bfloat16"):
        settings = TrainerSettings(
            tokens=150 * 64, batch=64, learning_rate=1e-2, precision=precision
        )
        config = DictionaryConfig(width=16, partition=Partition(latents=48), k=3)
        generator = torch.Generator().manual_seed(1)
        job, trainer = TrainingJob(config=config, settings=settings), None
        for step in range(150):
            value = torch.rand((64, 24), generator=generator)
            rows = ((value > 0.88) * value @ known).view(64, 2, 16)
            trainer = trainer or Trainer(job, rows, torch.device("cpu"))
            trainer.step(rows)
            if step == 120:
                trainer.measures()
        explained.append(torch.tensor(trainer.measures()["variance_explained"]))
        state = trainer.optimizer.state_dict()["state"].values()
        assert {one["exp_avg"].dtype for one in state} == {torch.float32}
        assert {weight.dtype for weight in trainer.dictionary.parameters()} == {torch.float32}
    assert float(explained[0].min()) > 0.7
    torch.testing.assert_close(explained[0], explained[1], rtol=0, atol=0.02)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 50), st.integers(0, 10_000), st.floats(-3, 3))
def test_batch_topk_is_exact_whatever_the_values(
    rows: int, latents: int, seed: int, shift: float
) -> None:
    pre = torch.randn((rows, latents), generator=torch.Generator().manual_seed(seed)) + shift
    k = 1 + seed % latents
    chosen = batch_topk(pre, k * rows)
    expected = pre.flatten().sort(descending=True)
    kept = expected.indices[: k * rows][expected.values[: k * rows] > 0]
    assert chosen.tolist() == sorted(kept.tolist())


def test_the_dead_of_one_model_explain_that_model_only() -> None:
    dictionary, _ = _dictionary(PARTITIONS["dedicated"], "batchtopk")
    errors = torch.randn(
        (ROWS, 2, WIDTH), dtype=torch.float64, generator=torch.Generator().manual_seed(5)
    )
    dead = torch.arange(3, 6)  # before-only
    both = aux_loss(dictionary, _rows(), errors, dead)
    changed = errors.clone()
    changed[:, 1] *= -1  # the after model's remainder turned round: nothing dead may speak of it
    turned = aux_loss(dictionary, _rows(), changed, dead)
    value, gradients = _gradients(both, dictionary, None)
    assert float(value) == pytest.approx(float(turned.detach()), abs=1e-12)
    assert float(gradients["encoders.0"][3:6].abs().max()) > 0
    assert (
        float(gradients["encoders.1"].abs().max())
        == float(gradients["decoders.1"].abs().max())
        == 0
    )
    live = [i for i in range(34 - 3) if i not in (3, 4, 5)]
    assert float(gradients["encoders.0"][live].abs().max()) == 0


@pytest.mark.parametrize("path", ["sparse", "dense"])
def test_one_model_latents_are_chosen_apart(path: str) -> None:
    """The K x rows largest shared values and the 1.5 x rows largest others,
    each block with its own smallest value.
    """
    part = PARTITIONS["reading all"]
    config = DictionaryConfig(width=WIDTH, partition=part, k=K, own_k=1.5)
    dictionary, rows = Dictionary(config, seed=5).double(), _rows()
    step = training_step(dictionary, own=36)
    result = forward(dictionary, rows, step, path=path)
    smallest = smallest_kept(result.value, result.latent, step)
    pre = dictionary.pre_activations(rows).detach()
    shared = torch.zeros(40, dtype=torch.bool)
    shared[part.shared] = True
    value = torch.zeros_like(pre)
    for block, number in ((shared, K * ROWS), (~shared, 36)):
        least = pre[:, block].flatten().sort(descending=True).values[number - 1].clamp(min=0)
        value[:, block] = torch.where(pre[:, block] >= least, pre[:, block], 0.0).clamp(min=0)
        kept = value[:, block]
        assert smallest[block].unique().tolist() == pytest.approx([float(kept[kept > 0].min())])
    assert int(result.active) == int((value > 0).sum())
    for m in (0, 1):
        expected = (
            value @ dictionary.directions()[:, m] + dictionary.centres[m].detach() - rows[:, m]
        )
        torch.testing.assert_close(result.errors[:, m].detach(), expected)


def test_the_error_of_the_difference_counts_as_it_is_weighed() -> None:
    """Loss with a weight of 3 less loss without: 3 sum |e_after - e_before|^2
    over rows, models and width.
    """
    job = TrainingJob(
        config=DictionaryConfig(width=WIDTH, partition=PARTITIONS["tied"], k=K),
        settings=TrainerSettings(tokens=ROWS, batch=ROWS, scale_rows=ROWS, auxiliary=0.0),
    )
    rows, losses = _rows().float(), []
    for weight in (0.0, 3.0):
        weights = {"difference_weight": (weight, weight)}
        settings = TrainerSettings(**(vars(job.settings) | weights))
        trainer = Trainer(
            TrainingJob(config=job.config, settings=settings), rows, torch.device("cpu")
        )
        dictionary = trainer.dictionary
        step = training_step(dictionary)
        errors = forward(dictionary, dictionary.scaled(rows), step).errors.detach()
        trainer.step(rows)
        losses.append(trainer.measures()["loss"])
    parted = (errors[:, 1] - errors[:, 0]).square().sum() / (ROWS * 2 * WIDTH)
    assert losses[1] - losses[0] == pytest.approx(3 * float(parted), rel=1e-4)
