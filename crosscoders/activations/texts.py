"""The texts that activations are harvested on: runs of a policy with what is
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
from typing import Any

import numpy as np

from crosscoders.activations.streams import PLAIN_TEXT, Rows, StepNote, TextNote
from forensics.errors import UserError
from forensics.policies import with_token_ids
from forensics.records import Trajectory, parse_json, require_file


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
