"""Paired activations of several checkpoints on the same tokens: what every
method of this room reads.

A *stream* gives blocks as often as it is asked; nobody holds it whole. A
block's rows are tokens; each row has one vector a checkpoint (index 0 is
before, the last is after), and says which token of which text it belongs to, so
that masks by role, step kind, channel, outcome and advantage can be made from
the texts' notes.

A stream can be seen through a *view*, such as the models' difference. Blocks are
shuffled in memory of fixed size: a pool holds so many rows; once it is full,
each new block takes the places of as many rows drawn at random, which come out,
and at the end the pool comes out in random order.

Axes, here and everywhere in this room: `rows` (tokens), `models` (checkpoints),
`width` (features of the site), `latents`.

The texts that activations are harvested on: runs of a policy with what is
known of their tokens, or plain text.

1. A trajectory's own tokens are taken as they were drawn. Each belongs to a
   step; the *deciding* token is the last one before an action's first sampled
   token, from whose activations that token is drawn.
2. A trajectory without them is tokenised again with a policy's rendering, which
   is said: what was drawn may have been cut into tokens in another way.
3. Plain text is tokenised with the pair's own tokenizer and cut into pieces.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from forensics.errors import UserError
from forensics.policies import with_token_ids
from forensics.records import Trajectory, parse_json, require_file

View = Callable[[Tensor], Tensor]  # what is seen of activations `[rows, models, width]`
PLAIN_TEXT = -1  # the step of a token of a text that has no steps


@dataclass(frozen=True, kw_only=True)
class StepNote:
    """One step of a text: who wrote it, the kinds of the actions in it, the
    channels that it showed.
    """

    role: str
    kinds: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TextNote:
    """One text. `task` is the unit of independence. `source`: which policy
    wrote it (`before`, `after`, ...).
    """

    id: str
    task: str
    source: str = "plain"
    outcome: float | None = None
    steps: tuple[StepNote, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is known of each row, as columns `[rows]`.

    `text`: index into the stream's `texts`. `position`: of the token in its
    text. `token`: its id. `step`: index into the text's steps, or `PLAIN_TEXT`.
    `sampled`: drawn by the policy. `deciding`: the last token before an
    action's first one, where the next action is decided. `advantage`: NaN where
    none is known.
    """

    text: np.ndarray
    position: np.ndarray
    token: np.ndarray
    step: np.ndarray
    sampled: np.ndarray
    deciding: np.ndarray
    advantage: np.ndarray

    def __len__(self) -> int:
        return len(self.text)

    def take(self, chosen: np.ndarray | slice) -> "Rows":
        """The chosen rows (indices, a mask, or a slice)."""
        return Rows(**{name: column[chosen] for name, column in vars(self).items()})

    @classmethod
    def join(cls, parts: Sequence["Rows"]) -> "Rows":
        """One after the other."""
        return cls(
            **{
                name: np.concatenate([getattr(part, name) for part in parts])
                for name in vars(parts[0])
            }
        )

    @classmethod
    def blank(cls, number: int) -> "Rows":
        """Rows of which nothing is known: one text, one after the other."""
        zero = np.zeros(number, dtype=np.int32)
        return cls(
            text=zero,
            position=np.arange(number, dtype=np.int32),
            token=zero,
            step=np.full(number, PLAIN_TEXT, dtype=np.int32),
            sampled=np.zeros(number, dtype=bool),
            deciding=np.zeros(number, dtype=bool),
            advantage=np.full(number, np.nan, dtype=np.float32),
        )


@dataclass(frozen=True, kw_only=True)
class Block:
    """Activations, and what is known of their rows."""

    activations: Float[Tensor, "rows models width"]
    rows: Rows

    def take(self, chosen: np.ndarray | slice) -> "Block":
        """The chosen rows, in that order: a copy of those at indices, a view of
        a slice.
        """
        if isinstance(chosen, slice):
            activations = self.activations[chosen]
        else:
            index = torch.from_numpy(chosen).to(self.activations.device)
            activations = self.activations.index_select(0, index)
        return Block(activations=activations, rows=self.rows.take(chosen))

    @classmethod
    def join(cls, blocks: Sequence["Block"]) -> "Block":
        """One block of several."""
        if len(blocks) == 1:
            return blocks[0]
        return cls(
            activations=torch.cat([block.activations for block in blocks]),
            rows=Rows.join([block.rows for block in blocks]),
        )


class Stream(Protocol):
    """Activations at one site. `blocks(seed)` is one pass: in order, or in one
    that the seed fixes.
    """

    @property
    def models(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def site(self) -> str: ...
    @property
    def texts(self) -> Sequence[TextNote]: ...
    @property
    def identity(self) -> str:
        """A hash of everything that decides the values: checkpoints, site, texts."""
        ...

    def blocks(self, seed: int | None = None) -> Iterator[Block]: ...


@dataclass(frozen=True, kw_only=True)
class MappedStream:
    """Another stream, its blocks passed through `view`, which makes blocks of
    `models`. `name` ends its identity.
    """

    stream: Stream
    models: int
    name: str
    view: Callable[[Iterator[Block]], Iterator[Block]]

    @property
    def width(self) -> int:
        return self.stream.width

    @property
    def site(self) -> str:
        return self.stream.site

    @property
    def texts(self) -> Sequence[TextNote]:
        return self.stream.texts

    @property
    def identity(self) -> str:
        return self.stream.identity + self.name

    def blocks(self, seed: int | None = None) -> Iterator[Block]:
        return self.view(self.stream.blocks(seed))


def difference_view(
    activations: Float[Tensor, "rows models width"],
) -> Float[Tensor, "rows 1 width"]:
    """Last model minus first."""
    return activations[:, -1:] - activations[:, :1]


def in_blocks(chunks: Iterable[Block], size: int) -> Iterator[Block]:
    """The same rows in the same order, `size` at a time; the last may be shorter."""
    waiting: list[Block] = []
    held = 0
    for chunk in chunks:
        waiting.append(chunk)
        held += len(chunk.rows)
        if held < size:
            continue
        whole = Block.join(waiting)
        last = held - held % size
        yield from (whole.take(slice(first, first + size)) for first in range(0, last, size))
        waiting, held = ([whole.take(slice(last, held))] if last < held else []), held - last
    if held:
        yield Block.join(waiting)


def shuffled(
    blocks: Iterable[Block], pool_rows: int, random: np.random.Generator
) -> Iterator[Block]:
    """Blocks in random order, by a pool of about `pool_rows` rows; those that
    come out are as long as those that go in.

    The order depends on the blocks and the generator alone.
    """
    filling: list[Block] = []
    pool: Block | None = None
    size = 1
    for block in blocks:
        size = max(size, len(block.rows))
        if pool is None:
            filling.append(block)
            if sum(len(b.rows) for b in filling) >= pool_rows:
                joined = Block.join(filling)
                pool, filling = joined.take(np.arange(len(joined.rows))), []  # a copy of its own
            continue
        places = random.choice(
            len(pool.rows), size=min(len(block.rows), len(pool.rows)), replace=False
        )
        out = pool.take(places)
        entering = block.take(slice(0, len(places)))
        index = torch.from_numpy(places).to(pool.activations.device)
        pool.activations[index] = entering.activations
        for name, column in vars(entering.rows).items():
            getattr(pool.rows, name)[places] = column
        yield out
        if len(places) < len(block.rows):
            yield block.take(slice(len(places), len(block.rows)))
    if pool is None and filling:
        pool = Block.join(filling)
    if pool is not None:
        order = random.permutation(len(pool.rows))
        for first in range(0, len(order), size):
            yield pool.take(order[first : first + size])


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """One text: its note and columns `[tokens]`, which mean what they mean in `Rows`."""

    note: TextNote
    token_ids: np.ndarray
    step: np.ndarray
    sampled: np.ndarray
    deciding: np.ndarray
    advantage: np.ndarray

    def __len__(self) -> int:
        return len(self.token_ids)

    def until(self, length: int) -> "TokenizedText":
        """Its first tokens."""
        columns = {name: column[:length] for name, column in vars(self).items() if name != "note"}
        return TokenizedText(note=self.note, **columns)

    def rows(self, index: int) -> Rows:
        """Every token as a row of a stream whose `texts[index]` this is."""
        number = len(self)
        return Rows(
            text=np.full(number, index, dtype=np.int32),
            position=np.arange(number, dtype=np.int32),
            token=self.token_ids,
            step=self.step,
            sampled=self.sampled,
            deciding=self.deciding,
            advantage=self.advantage,
        )


def texts_of(
    trajectories: Iterable[Trajectory],
    *,
    policy: Any = None,
    sources: Mapping[str, str] | None = None,
    advantages: Mapping[str, float | Sequence[float]] | None = None,
    say: Callable[[str], None] | None = None,
) -> list[TokenizedText]:
    """Texts of runs, in their order. Runs without a token are left out.

    `policy`: whose rendering tokenises runs that came without tokens; `say` is
    told how many. Raises `UserError` where one is needed and missing.
    `sources`: names of policies (`{identity: "before"}`) for the notes.
    `advantages`: by trajectory, one number or one for each sampled token.
    """
    texts, again = [], 0
    for trajectory in trajectories:
        if any(
            s.token_ids is None or (s.sampled is None and s.role == "assistant")
            for s in trajectory.steps
        ):
            if policy is None:
                raise UserError(
                    f"trajectory {trajectory.id} has no token ids, or does not say which were"
                    " sampled; give a policy, whose rendering tokenises it again"
                )
            trajectory, again = with_token_ids(trajectory, policy), again + 1
        steps = trajectory.steps
        if not any(step.token_ids for step in steps):
            continue
        note = TextNote(
            id=trajectory.id,
            task=trajectory.task,
            source=(sources or {}).get(trajectory.policy, trajectory.policy),
            outcome=trajectory.outcome,
            steps=tuple(StepNote(role=s.role, kinds=s.kinds, channels=s.channels) for s in steps),
        )
        tokens = [
            (number, token, sampled)
            for number, step in enumerate(steps)
            for token, sampled in zip(
                step.token_ids or (),
                step.sampled or (False,) * len(step.token_ids or ()),
                strict=True,
            )
        ]
        number, ids, drawn = (np.array(column) for column in zip(*tokens, strict=True))
        advantage = (advantages or {}).get(trajectory.id)
        texts.append(_text(note, ids, number, drawn, advantage))
    if again and say:
        say(
            f"{again} runs came without token ids and were tokenised again with the policy's"
            " rendering; what the policy drew may have been cut into other tokens"
        )
    return texts


def texts_hash(texts: Sequence[TokenizedText], rows: Sequence[np.ndarray] | None = None) -> str:
    """SHA-256 of every token and of what is known of it; with `rows` of the tokens alone and of
    which are meant.
    """
    digest = hashlib.sha256()
    for number, text in enumerate(texts):
        columns = [text.token_ids, text.step, text.sampled, text.deciding, text.advantage]
        if rows is None:
            digest.update(repr(text.note).encode())
        else:
            columns = [np.array(len(text)), text.token_ids, rows[number]]
        for column in columns:
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def plain_text(token_ids: Sequence[int], name: str, task: str | None = None) -> TokenizedText:
    """A text of which nothing is known but its tokens."""
    number = len(token_ids)
    note = TextNote(id=name, task=task or name)
    return _text(note, token_ids, np.full(number, PLAIN_TEXT), [False] * number, None)


def read_texts(path: Path | str, tokenizer: Any, *, length: int = 1024) -> list[TokenizedText]:
    """Texts of a `.jsonl` file (one object a line with a field `text`) or of a text
    file (texts parted by empty lines).

    Each is cut into pieces of at most `length` tokens, which share a task.
    Raises `UserError` for what cannot be read.
    """
    file = Path(path).expanduser()
    require_file(file, "", "give a UTF-8 file")
    try:
        raw = list(_raw_texts(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read as text ({error}); give a UTF-8 file") from None
    pieces = []
    for number, text in enumerate(raw):
        ids = tokenizer(text)["input_ids"]
        for at in range(0, len(ids), length):
            pieces.append(
                plain_text(
                    ids[at : at + length], f"{file.name}:{number}:{at}", f"{file.name}:{number}"
                )
            )
    if not pieces:
        raise UserError(f"{file} holds no text; give a file with texts in it")
    return pieces


def _raw_texts(file: Path) -> Iterator[str]:
    if file.suffix not in (".jsonl", ".ndjson"):
        yield from (part for part in file.read_text(encoding="utf-8").split("\n\n") if part.strip())
        return
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line)["text"]
            except (ValueError, KeyError, TypeError, IndexError):
                value = None
            if not isinstance(value, str):
                raise UserError(
                    f'{file} line {number} is not an object with a text under "text"; mend the line'
                )
            yield value


def _text(
    note: TextNote,
    token_ids: Sequence[int] | np.ndarray,
    step: np.ndarray,
    sampled: Sequence[bool] | np.ndarray,
    advantage: float | Sequence[float] | None,
) -> TokenizedText:
    """A text of columns `[tokens]`. A deciding token comes before the first one that
    the policy drew in a step; where steps are not known, before a run of sampled
    tokens.
    """
    drawn = np.asarray(sampled, dtype=bool)
    given = np.full(len(drawn), np.nan, dtype=np.float32)
    if advantage is not None:
        if isinstance(advantage, Sequence) and len(advantage) != drawn.sum():
            raise UserError(
                f"{note.id} has {int(drawn.sum())} sampled tokens and {len(advantage)} advantages;"
                " give one for each, or one for all"
            )
        given[drawn] = advantage
    first = drawn & ~np.append(False, drawn[:-1])
    if (step != PLAIN_TEXT).all():
        places = np.flatnonzero(drawn)
        first = np.zeros(len(drawn), dtype=bool)
        first[places[np.unique(step[places], return_index=True)[1]]] = True
    return TokenizedText(
        note=note,
        token_ids=np.asarray(token_ids, dtype=np.int32),
        step=np.asarray(step, dtype=np.int32),
        sampled=drawn,
        deciding=np.append(first[1:], False),
        advantage=given,
    )
