"""What `forensics diff` is asked, checked before anything is loaded. Light at import."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from forensics.budget import Budget
from forensics.errors import UserError
from forensics.policies import Given, stated_backend
from forensics.protocols import Environment

AUTO = "auto"
SIDES = ("before", "after")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the dictionary. `latents`: `None` is four times the width of the site.
    `after_only`: `None` is a 32nd of them, 8 at least. `k`: active latents a
    token. Shared decoders are tied and no block is before-only, since free ones
    take up what belongs to after alone. `opening`: the first share of the
    training, in which after-only latents are found in the models' difference
    (see `crosscoders.dictionaries.difference_init`).
    """

    latents: int | None = None
    after_only: int | None = None
    k: int = 12
    opening: float = 0.0

    def sizes(self, width: int) -> tuple[int, int, int]:
        """Latents, after-only ones and k at a site's width. Raises `UserError`
        where they do not fit each other.
        """
        latents = self.latents or 4 * width
        after_only = self.after_only if self.after_only is not None else max(8, latents // 32)
        if not 0 < self.k <= latents or not 0 <= after_only < latents:
            raise UserError(
                f"{latents} latents cannot have {after_only} after-only ones and {self.k} active"
                " ones; ask for more latents or for less of the others"
            )
        if not 0 <= self.opening < 1 or (self.opening and not after_only):
            raise UserError(
                f"--opening is {self.opening} with {after_only} after-only latents; it is a share"
                " of the training from 0 to 1 (0.4 is tested) in which these are found, so ask for"
                " some"
            )
        return latents, after_only, self.k


@dataclass(frozen=True, kw_only=True)
class DiffRequest:
    """`site`: a TransformerLens name, or `auto`: chosen by patching. `kind`:
    the kind of action that is set against all others (`None`: the channel or
    kind whose use rose most). `tokens` that the dictionary is trained on.
    `decisions` that are patched; 0 leaves patching out. `controls`,
    `baselines`: whether they are run. `dictionary`: one that is taken instead
    of training one (see `interchange.reading`); `auto` is then its own site.

    One source of texts: an environment (with its `options` and `budget`),
    `runs` (a log) or `texts` (a plain file).
    """

    before: Given
    after: Given
    environment: Environment | str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    runs: Path | None = None
    texts: Path | None = None
    site: str = AUTO
    kind: str | None = None
    shape: Shape = field(default_factory=Shape)
    tokens: int = 400_000
    decisions: int = 96
    controls: bool = True
    baselines: bool = True
    dictionary: Path | None = None
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    device: str = "auto"
    backend: str = "huggingface"

    def __post_init__(self) -> None:
        if sum(source is not None for source in (self.environment, self.runs, self.texts)) > 1:
            raise UserError(
                "--env, --runs and --texts exclude each other; give one source of texts"
            )
        if self.dictionary is not None and self.shape != Shape():
            raise UserError(
                "--latents, --after-only, --k and --opening are for a dictionary that is trained;"
                " leave them out with --dictionary"
            )
        if self.site == AUTO and not self.decisions and self.dictionary is None:
            raise UserError(
                "the site is chosen by patching; name one with --site, or patch at some decisions"
            )
        if self.tokens < 1 or self.decisions < 0:
            raise UserError("--tokens must be at least 1 and --decisions at least 0")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed is {self.seed} and must be a whole number from 0 to 2^63 - 1")

    @property
    def plays(self) -> bool:
        """Whether both policies play in an environment."""
        return self.runs is None and self.texts is None

    def stated(self) -> dict[str, Any]:
        """What decides the numbers beside checkpoints, world and texts."""
        return {
            "site": self.site,
            "kind": self.kind,
            "shape": asdict(self.shape),
            "tokens": self.tokens,
            "decisions": self.decisions,
            "controls": self.controls,
            "seed": self.seed,
            **stated_backend(self.backend),
        }
