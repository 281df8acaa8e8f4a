"""What `forensics diff` is asked, checked before anything is loaded; the files of a
diff, and reading them back. Light at import: no torch.

`patching.json`: where the change lives. `dictionary/`: the sparse dictionary.
`latents.parquet`: its latents.
`tokens.json`: their strongest tokens in context. `explanations.json`: what else they say, and
`neuronpedia.json` as Neuronpedia's dashboard reads it. `causes.json`: what taking out a latent
moves, beside random directions; `readers.json`: the same of readers of the difference.
`quality.json`, `controls.json`: how good it is, and what shows nothing. `baselines.json`: what
simpler methods do. `diff.json`: what was asked, and the findings in sentences.
`steering.json`: what `forensics steer` adds.

What is told of the test of a cause (`causes`): whether what was taken out moves more than random
directions do, and where that is not shown, which of the three conditions is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from forensics.budget import Budget
from forensics.errors import UserError
from forensics.phrases import plural
from forensics.policies import Given, stated_backend
from forensics.protocols import Environment
from forensics.records import read_json

AUTO = "auto"
READER: Final = "components"  # that leads the page, by experiments/readers_of_the_difference
READERS: Final = ("components", "mean-after")  # see leading_reader
SIDES = ("before", "after")
READ_FIRST: Final = (*SIDES, "texts")  # what a diff's inputs say of what it read
MOST_TOKENS: Final = 400_000  # to train on, unless asked otherwise
SMALL: Final = 8  # layers of a network that is read and patched in full
PASSES: Final = 2  # over the texts of a deeper one, in training
MOST_READ: Final = 40_000  # tokens of a deeper one's texts, unless more are asked for
MOST_DECISIONS, DEEP_DECISIONS = 96, 32  # to patch at, unless asked otherwise


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Of the dictionary. `latents`: `None` is four times the width of the site.
    `after_only`: `None` is a 32nd of them, 8 at least. `k`: active latents a
    token. Shared decoders are tied and no block is before-only, since free ones
    take up what belongs to after alone.
    """

    latents: int | None = None
    after_only: int | None = None
    k: int = 12

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
        return latents, after_only, self.k


@dataclass(frozen=True, kw_only=True)
class DiffRequest:
    """`site`: a TransformerLens name, or `auto`: chosen by patching. `kind`:
    the kind of action that is set against all others (`None`: the channel or
    kind whose use rose most). `tokens` that the dictionary is trained on (`None`:
    `MOST_TOKENS`, in a deep network two passes over the texts if that is less).
    `decisions` that are patched (`None`: `MOST_DECISIONS`, in a deep network
    `DEEP_DECISIONS`); 0 leaves patching out. `seeds`: first weights that the pair's dictionary is
    trained from, side by side; with 1 it is not known which latents come back. `controls`,
    `baselines`: whether they are run. `keep_outliers`: leave no attention sink out. `identical`:
    run a checkpoint against itself, as a control. `reader` of the difference that leads the page
    (see `leading_reader`). `dictionary`: one that is taken instead of training one (see
    `saved.open_dictionary`); `auto` is then its own site. `activations`: the folder that keeps what
    is read of the checkpoints (`None`: below the diff's, until it is done).

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
    tokens: int | None = None
    decisions: int | None = None
    seeds: int = 3
    controls: bool = True
    baselines: bool = True
    keep_outliers: bool = False
    identical: bool = False
    reader: str = READER
    dictionary: Path | None = None
    activations: Path | None = None
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
                "--latents, --after-only and --k are for a dictionary that is trained; leave them"
                " out with --dictionary"
            )
        if self.site == AUTO and self.decisions == 0 and self.dictionary is None:
            raise UserError(
                "the site is chosen by patching; name one with --site, or patch at some decisions"
            )
        if (self.tokens is not None and self.tokens < 1) or (self.decisions or 0) < 0:
            raise UserError("--tokens must be at least 1 and --decisions at least 0")
        if self.reader not in READERS:
            raise UserError(f"--reader is '{self.reader}'; use one of: {', '.join(READERS)}")
        if self.seeds < 1:
            raise UserError(
                f"--seeds is {self.seeds} and must be at least 1; 1 leaves stability unmeasured"
            )
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
            "tokens": MOST_TOKENS if self.tokens is None else self.tokens,
            "decisions": MOST_DECISIONS if self.decisions is None else self.decisions,
            "seeds": self.seeds,
            "controls": self.controls,
            "seed": self.seed,
            **({"keep_outliers": True} if self.keep_outliers else {}),
            **({"reader": self.reader} if self.reader != READER else {}),
            **stated_backend(self.backend),
        }


DIFF: Final = "diff.json"
PATCHING: Final = "patching.json"
DICTIONARY: Final = "dictionary"
LATENTS: Final = "latents.parquet"
TOKENS: Final = "tokens.json"
EXPLANATIONS: Final = "explanations.json"
NEURONPEDIA: Final = "neuronpedia.json"
CAUSES: Final = "causes.json"
QUALITY: Final = "quality.json"
CONTROLS: Final = "controls.json"
BASELINES: Final = "baselines.json"
STEERING: Final = "steering.json"
STEERED: Final = "steering"  # the folder that the suggested command writes it to
STEERED_READER: Final = "steering-reader"  # that of the leading reader
READERS_FILE: Final = "readers.json"
PAGE: Final = "diff.html"
VERSION: Final = 1
MOST_LATENTS: Final = 20  # with their tokens
COLUMNS: Final = (
    "latent",
    "partition",
    "relative_norm",
    "decoder_cosine",
    "nu_after",
    "nu_before",
    "frequency",
    "q_value",
)


def read_part(folder: Path, name: str) -> Any:
    """A JSON file of a diff, `None` where it was not written. Raises
    `UserError` where it is broken.
    """
    path = folder / name
    return read_json(path) if path.is_file() else None


def read_summary(folder: Path) -> dict[str, Any]:
    """`diff.json`. Raises `UserError` for a folder that holds no finished diff."""
    found = read_part(folder, DIFF)
    if not isinstance(found, dict):
        raise UserError(f"{folder} holds no {DIFF}; give the folder that `forensics diff` wrote")
    if found.get("schema_version") != VERSION:
        raise UserError(
            f"the diff in {folder} was made by another version of this program; make it again with"
            " `forensics diff ... --force`"
        )
    return found


def split_sentences(summary: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Those of a diff that answer first (all, where it does not say which), and the others."""
    found: list[str] = summary["sentences"]
    first = summary.get("opening", len(found))
    return found[:first], found[first:]


@dataclass(frozen=True, kw_only=True)
class Latent:
    """A row of the table of latents; `None` is what could not be measured.
    `difference`: of the diff's first contrast.
    """

    latent: int
    partition: str
    relative_norm: float | None
    decoder_cosine: float | None
    nu_after: float | None
    nu_before: float | None
    frequency: float | None
    q_value: float | None
    difference: float | None = None
    stability: float | None = None  # the share of the other seeds in which it comes back
    specific: str | None = None  # `after`, `before` or `none`

    @property
    def is_specific(self) -> bool:
        return self.specific in ("after", "before")

    @property
    def is_silent(self) -> bool:
        """On the tasks reported on."""
        return self.frequency == 0

    @property
    def comes_back(self) -> bool:
        """From every other seed; without others nothing is known against it."""
        return self.stability is None or self.stability == 1


def read_latents(folder: Path, contrasts: Sequence[str] | None) -> tuple[Latent, ...]:
    """The rows of `latents.parquet`, NaN as `None`. Raises `UserError` where it
    is missing, broken or another table.
    """
    from forensics.records import open_whole

    path = folder / LATENTS
    if not path.is_file():
        raise UserError(
            f"{path} does not exist; run `forensics diff --resume` with the same options"
        )
    with open_whole(path) as file:
        table = file.read()
    if missing := [name for name in COLUMNS if name not in table.column_names]:
        raise UserError(
            f"{path} has no column {missing[0]}, so it is no table of latents; use --force"
        )
    columns = {name: name for name in (*COLUMNS, "specific", "stability")}
    columns["difference"] = f"difference_{contrasts[0]}" if contrasts else ""

    def known(value: Any) -> Any:
        return value if value == value else None  # NaN is a value that is not known

    return tuple(
        Latent(**{name: known(row.get(column)) for name, column in columns.items()})
        for row in table.to_pylist()
    )


def separating(latents: Sequence[Latent]) -> list[Latent]:
    """Latents by how surely they separate the two groups of steps, then by how
    much; those untested last.
    """

    def order(latent: Latent) -> tuple[float, float, int]:
        q, difference = latent.q_value, latent.difference
        return (2.0 if q is None else q, -abs(difference or 0.0), latent.latent)

    return sorted(latents, key=order)


Lack = Literal["", "random", "spread", "size"]


def lacks(cause: Mapping[str, Any]) -> Lack:
    """The first condition that a cause as in `causes.json` fails: a `random` direction moves as
    much, it goes beyond all of them by no more than the tasks' `spread`, or its `size` is small.
    """
    if cause["holds"]:
        return ""
    if cause["p_value"] * len(cause["random"]) > 0.99:  # 1 / n where the n-th moves as much
        return "random"
    return "spread" if cause["beyond"]["low"] <= 0 else "size"


def shown(cause: Mapping[str, Any], other: str, size: str) -> str:
    """In words, beside each `other` thing of equal `size` that was tried."""
    tried = len(cause["random"])
    number, each = f"{plural(tried, other)} of equal {size}", f"beyond each of {tried} {other}s"
    one = f"one of {tried} does as much" if tried > 1 else "the first one does as much"
    return {
        "": f"more than {number}",
        "random": f"not shown to be more than {other}s of equal {size}, since {one}",
        "spread": f"{each} of equal {size}, but by no more than the tasks' spread explains, so not"
        " shown",
        "size": f"{each} of equal {size}, but all of it moves less than is worth a word",
    }[lacks(cause)]
