"""Everything that decides what the study measures, in one record; results are
kept under its hash.
"""

from dataclasses import asdict, dataclass, field, replace

from crosscoders import difference_view
from crosscoders.dictionaries import DictionaryConfig, Partition, TrainerSettings, TrainingJob
from experiments.one_feature.first_decision import RANDOM
from experiments.one_feature.measuring import STRENGTHS
from forensics.protocols import SamplingSettings
from forensics.records import content_hash

RULED = "dedicated"


@dataclass(frozen=True, kw_only=True)
class StudySettings:
    """`tasks`: held-out ones, half of which choose. `runs`: harvested of each
    policy; `turn` and `whole`: the most tokens of a turn and of a run. `own_k`
    and `parting` are those of the ruled dictionary. `random`: directions.
    """

    site: str = "blocks.2.hook_resid_post"
    tasks: int = 600
    runs: int = 300
    turn: int = 16
    whole: int = 256
    fitting: TrainerSettings = field(
        default_factory=lambda: TrainerSettings(tokens=200_000, batch=512, learning_rate=2e-3)
    )
    latents: int = 256
    after_only: int = 8
    k: int = 12
    own_k: float = 1.0
    parting: tuple[float, float] = (1.0, 10.0)
    difference_latents: int = 64
    difference_k: int = 1
    strengths: tuple[float, ...] = STRENGTHS
    random: int = RANDOM

    @property
    def sampling(self) -> SamplingSettings:
        return SamplingSettings(max_turn_tokens=self.turn, max_tokens=self.whole)

    def key(self, name: str, seed: int, weights: tuple[str, str]) -> str:
        """What a result of these settings is kept under. `weights`: hashes of
        the before and the after model.
        """
        return content_hash([asdict(self), name, seed, list(weights)])[:16]

    def jobs(self, width: int, seed: int) -> dict[str, TrainingJob]:
        """What trains each dictionary, for activations of a width."""
        fitting = replace(self.fitting, seed=seed)
        first, last = self.parting
        partitions = {
            RULED: Partition(
                latents=self.latents, after_only=self.after_only, tied=True, readers="all"
            ),
            "dedicated, own readers": Partition(
                latents=self.latents, after_only=self.after_only, tied=True
            ),
            "plain": Partition(latents=self.latents),
        }
        jobs = {
            name: TrainingJob(
                config=DictionaryConfig(width=width, partition=part, k=self.k), settings=fitting
            )
            for name, part in partitions.items()
        }
        jobs[RULED] = TrainingJob(
            config=replace(jobs[RULED].config, own_k=self.own_k),
            settings=replace(fitting, parting=first, parting_last=last),
        )
        single = Partition(latents=self.difference_latents)
        jobs["difference-SAE"] = TrainingJob(
            config=DictionaryConfig(width=width, partition=single, models=1, k=self.difference_k),
            settings=fitting,
            view=difference_view,
        )
        return jobs
