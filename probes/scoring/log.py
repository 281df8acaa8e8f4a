"""Both checkpoints over a whole log in one streaming pass.

1. Trajectories are laid out as texts (`layout`), a window of them at a time; those without token ids are tokenised
   again (`retokenise`), and told so.
2. The texts of a window are packed (`forest`) and read by both models, a pack at a time (`reader`); what is kept are
   the hidden states at the places of sampled tokens.
3. From these the columns are formed a chunk of positions at a time (`columns`), so that no array of the size
   `[tokens, vocabulary]` ever exists, whatever the log's length.

A policy that is no model on this machine (a server) is asked for its log-probabilities instead; then `policy` and
`reference` are the only columns. Two policies of one content hash are one policy, and the ratio is exactly 0; where
the hash is that of weights which training has changed since (a live policy), they are two.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

import numpy as np
import torch

from forensics.errors import UserError
from forensics.policies.room import positions
from forensics.policies.sampling import Text
from forensics.protocols import SamplingSettings
from forensics.records import Trajectory
from probes.scored import Positions, Readout, Scored
from probes.scoring.columns import Asked, Columns
from probes.scoring.forest import Pack, pack
from probes.scoring.layout import Layout, lay_out, require_known
from probes.scoring.reader import Reader
from probes.scoring.retokenise import with_token_ids
from probes.scoring.sides import one_policy

WINDOW_TOKENS: Final = 65536
WINDOW_TEXTS: Final = 1024


class Scorable(Protocol):
    """What can be scored with: a backend with a `model` (`HuggingFacePolicy`), or any `Policy` with `logprobs`.

    `identity`: content hash. It may have: `within`, a context for every pass of its model; `room`, tokens that fit;
    `tokenizer` and `rendering`, for logs without token ids.
    """

    @property
    def identity(self) -> str: ...


def score_log(
    policy: Scorable, reference: Scorable | None, trajectories: Iterable[Trajectory], *,
    settings: SamplingSettings | None = None, readouts: Sequence[Readout] = (), most_tokens: int | None = None,
    first: int = 0,
) -> Iterator[Scored]:
    """Each trajectory with its columns, in order.

    `reference` `None`: without the columns that need one. `settings`: the distribution that log-probabilities are
    stated under, for both (default: the model's own, temperature 1). `readouts`: further columns. `most_tokens`: read
    at most so many last tokens of a text (default: the positions that the models were made for). `first`: number of
    the first trajectory, as readouts are told it.
    Raises `UserError` for checkpoints of different tokenizers, a log of another tokenizer, and readouts that need
    whole distributions where there are none.
    """
    settings = settings or SamplingSettings()
    if reference is not None:
        require_one_tokenizer(policy, reference)
    limit = _limit([policy] if reference is None else [policy, reference], most_tokens)
    scorer = _scorer(policy, reference, settings, readouts)
    checked = _Checked(policy)
    number = first
    for window in _windows(lay_out_log(policy, trajectories, limit, checked)):
        yield from scorer(window, number)
        number += len(window)


def lay_out_log(
    policy: Scorable, trajectories: Iterable[Trajectory], most_tokens: int | None, checked: "_Checked | None" = None
) -> Iterator[Layout]:
    """Every trajectory as a text; those without token ids in the policy's rendering."""
    for trajectory in trajectories:
        bare = any(step.token_ids is None for step in trajectory.steps)
        if checked is not None and not bare:
            checked.look(trajectory)
        yield lay_out(with_token_ids(trajectory, policy) if bare else trajectory, most_tokens, retokenised=bare)


def require_one_tokenizer(policy: Any, reference: Any) -> None:
    """Refuse two checkpoints whose tokens do not mean the same. Raises `UserError`."""
    ours, theirs = (getattr(one, "tokenizer", None) for one in (policy, reference))
    if ours is None or theirs is None or ours is theirs:
        return
    if ours.get_vocab() != theirs.get_vocab():
        raise UserError("policy and reference have different tokenizers, so no token has a ratio; give two checkpoints "
                        "of one training run")


class _Checked:
    """Whether the log's token ids say in this tokenizer what its texts say; a few actions are looked at."""

    LOOKED_AT: Final = 16

    def __init__(self, policy: Any) -> None:
        self._rendering = getattr(policy, "rendering", None)
        self._left, self._other = self.LOOKED_AT, 0

    def look(self, trajectory: Trajectory) -> None:
        """Raises `UserError` when none of the first actions agrees."""
        for _, step in trajectory.actions:
            if self._rendering is None or not self._left or not step.text.strip() or not step.token_ids:
                continue
            own = step.sampled or (True,) * len(step.token_ids)
            drawn = [token for token, sampled in zip(step.token_ids, own, strict=True) if sampled]
            self._left -= 1
            self._other += self._told(drawn) != "".join(step.text.split())
            if not self._left and self._other == self.LOOKED_AT:
                raise UserError("the log's token ids do not spell its texts in the policy's tokenizer; give the "
                                "checkpoint that made the log, or a log without token ids")

    def _told(self, ids: list[int]) -> str | None:
        try:
            assert self._rendering is not None
            return "".join(self._rendering.action_text(ids).split())
        except (IndexError, OverflowError, TypeError):  # ids that the tokenizer does not have
            return None


def _limit(policies: Sequence[Any], most_tokens: int | None) -> int | None:
    models = [one.model for one in policies if hasattr(one, "model")]
    rooms = [getattr(one, "room", None) for one in policies]  # of servers
    known = [most_tokens, *rooms, *(positions(model.config.to_dict()) for model in models)]
    return min((limit for limit in known if limit is not None), default=None)


def _windows(layouts: Iterable[Layout]) -> Iterator[list[Layout]]:
    window: list[Layout] = []
    tokens = 0
    for layout in layouts:
        window.append(layout)
        tokens += len(layout.ids)
        if tokens >= WINDOW_TOKENS or len(window) == WINDOW_TEXTS:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def _scorer(policy: Any, reference: Any, settings: SamplingSettings, readouts: Sequence[Readout]) -> Any:
    everyone = [one for one in (policy, reference) if one is not None]
    if all(hasattr(one, "model") for one in everyone):
        return _Models(policy, reference, settings, readouts).score
    if readouts:
        raise UserError("a server tells the log-probabilities of tokens and no whole distributions, which this reading "
                        "needs; give the checkpoint directory")
    return _Told(policy, reference, settings).score


class _Models:
    """Scores windows with models on this machine."""

    def __init__(self, policy: Any, reference: Any, settings: SamplingSettings, readouts: Sequence[Readout]) -> None:
        ours = _reader(policy)
        same = reference is not None and one_policy(policy, reference)
        theirs = None if reference is None else ours if same else _reader(reference)
        self._readers = [ours] if theirs is None or same else [ours, theirs]
        if theirs is not None and theirs.vocabulary != ours.vocabulary:
            raise UserError(f"the policy has {ours.vocabulary} tokens and the reference {theirs.vocabulary}; give two "
                            "checkpoints of one training run")
        self._settings = settings
        self._columns = Columns(ours, theirs, settings, readouts)

    @torch.inference_mode()
    def score(self, window: Sequence[Layout], first: int) -> list[Scored]:
        """`first`: number of the window's first trajectory in the log."""
        for layout in window:
            require_known(layout, self._readers[0].known)
        values: list[np.ndarray] = [np.empty((0, len(self._columns.names)))] * len(window)
        texts = [layout.ids[: layout.at.max(initial=0)] for layout in window]
        wanted = [i for i, layout in enumerate(window) if layout.read.any()]
        for forest in pack([texts[i] for i in wanted], self._readers[0].cost):
            members = [wanted[i] for i in forest.texts]
            found = self._read(forest, [window[i] for i in members], [first + i for i in members])
            for member, rows in zip(members, found, strict=True):
                values[member] = rows
        return [layout.scored(dict(zip(self._columns.names, rows.T, strict=True)))
                for layout, rows in zip(window, values, strict=True)]

    def _read(self, forest: Pack, layouts: Sequence[Layout], numbers: Sequence[int]) -> list[np.ndarray]:
        """Columns `[tokens read, names]` of each text of a pack."""
        nodes = [path[layout.at[layout.read] - 1] for path, layout in zip(forest.paths, layouts, strict=True)]
        wanted, node = np.unique(np.concatenate(nodes), return_inverse=True)
        states = [reader.states(forest, wanted) for reader in self._readers]
        texts = None
        if self._settings.penalises:  # then what may come depends on more than the state
            texts = list(chain.from_iterable(_texts(layout) for layout in layouts))
            states, node = [part[node] for part in states], np.arange(len(node))
        asked = Asked(node=node, positions=_positions(layouts, numbers), texts=texts)
        return np.split(self._columns.read(states, asked), np.cumsum([len(part) for part in nodes])[:-1])


def _reader(policy: Any) -> Reader:
    within = getattr(policy, "within", None)
    return Reader(policy.model) if within is None else Reader(policy.model, within)


def _positions(layouts: Sequence[Layout], numbers: Sequence[int]) -> Positions:
    def joined(name: str) -> np.ndarray:
        return np.concatenate([getattr(layout, name)[layout.read] for layout in layouts])

    counts = [int(layout.read.sum()) for layout in layouts]
    return Positions(token=joined("token"), trajectory=np.repeat(numbers, counts), step=joined("step"),
                     place=joined("place"))


def _texts(layout: Layout) -> Iterator[Text]:
    """What stands before each token that is read, and where its action starts."""
    ids = layout.ids.tolist()
    for at in layout.at[layout.read].tolist():
        yield Text(ids=ids[:at], start=max((start for start in layout.starts if start <= at), default=0))


@dataclass(frozen=True)
class _Told:
    """Scores windows by what policies tell of their own log-probabilities."""

    policy: Any
    reference: Any
    settings: SamplingSettings

    def score(self, window: Sequence[Layout], first: int) -> list[Scored]:
        told = {"policy": self._of(self.policy, window)}
        if self.reference is not None:
            same = one_policy(self.policy, self.reference)
            told["reference"] = told["policy"] if same else self._of(self.reference, window)
        return [layout.scored({name: rows[i] for name, rows in told.items()}) for i, layout in enumerate(window)]

    def _of(self, policy: Any, window: Sequence[Layout]) -> list[np.ndarray]:
        """Of each text, the log-probabilities of its tokens that can be read. A text is sent up to the last of them."""
        more: dict[str, Any] = {}
        asked = [layout for layout in window if layout.read.any()]
        if self.settings.penalises_output:
            more["starts"] = [layout.starts for layout in asked]
        texts = [layout.ids[: layout.at.max() + 1].tolist() for layout in asked]
        found = iter(policy.logprobs(texts, self.settings, **more) if asked else ())
        return [np.asarray(next(found), dtype=float)[layout.at[layout.read] - 1] if layout.read.any() else np.empty(0)
                for layout in window]
