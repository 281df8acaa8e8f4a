"""The difference-SAE by SAELens' own trainer on the same rows explains about as much as ours."""

import pytest
import torch

from crosscoders.dictionary import DictionaryConfig
from crosscoders.fitting import FittingSettings, difference, forward, train_crosscoder
from crosscoders.partition import Partition
from tests.crosscoders.test_fitting_loop import WIDTH, _world

LATENTS, K, STEPS, BATCH, RATE = 24, 2, 500, 128, 5e-3


def _theirs(rows: torch.Tensor) -> torch.Tensor:
    """Errors on `rows [rows, width]` of an SAE that SAELens trained on them."""
    from sae_lens.config import SAETrainerConfig
    from sae_lens.saes.batchtopk_sae import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
    from sae_lens.saes.sae import TrainStepInput
    from sae_lens.training.sae_trainer import SAETrainer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        sae = BatchTopKTrainingSAE(BatchTopKTrainingSAEConfig(d_in=WIDTH, d_sae=LATENTS, k=K))
    drawn = torch.Generator().manual_seed(0)
    batches = (rows[torch.randint(len(rows), (BATCH,), generator=drawn)] for _ in range(STEPS + 2))
    config = SAETrainerConfig(
        total_training_samples=STEPS * BATCH, train_batch_size_samples=BATCH, lr=RATE, lr_end=RATE / 10
    )
    trainer: SAETrainer = SAETrainer(config, sae, data_provider=batches)
    trainer.fit()
    given = TrainStepInput(
        sae_in=rows, coefficients={}, dead_neuron_mask=None, n_training_steps=STEPS, is_logging_step=False
    )
    return sae.training_forward_pass(given).sae_out.detach() - rows


def test_ours_explains_as_much_as_theirs() -> None:
    world, _ = _world(6000)
    stream = difference(world)
    config = DictionaryConfig(width=WIDTH, models=1, partition=Partition(latents=LATENTS), k=K)
    settings = FittingSettings(tokens=STEPS * BATCH, batch=BATCH, learning_rate=RATE)
    dictionary = train_crosscoder(stream, config, settings, device="cpu").dictionary
    rows = torch.cat([block.activations for block in stream.blocks()])
    scaled = dictionary.scaled(rows)
    with torch.no_grad():
        ours = forward.run(dictionary, scaled, forward.Pass(k=K)).errors[:, 0]
    there = scaled[:, 0] - scaled[:, 0].mean(0)
    explained = [1 - float(e.square().sum() / there.square().sum()) for e in (ours, _theirs(scaled[:, 0]))]
    assert explained[1] > 0.5  # theirs has learnt something
    assert explained[0] == pytest.approx(explained[1], abs=0.05) or explained[0] > explained[1]
