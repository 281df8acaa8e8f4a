"""The texts that activations are harvested on: runs of a policy with what is
known of their tokens, or plain text.

1. A trajectory's own tokens are taken as they were drawn. Each belongs to a
   step; the *deciding* token is the last one before an action's first sampled
   token, from whose activations that token is drawn.
2. A trajectory without them is tokenised again with a policy's rendering, which
   is said: what was drawn may have been cut into tokens in another way, and the
   token that ended an action stands with the reply.
3. A row of a training record brings the advantage that its loss used.
4. Plain text is tokenised with the pair's own tokenizer and cut into pieces.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscoders.activations.streams import PLAIN_TEXT, Rows, StepNote, TextNote
from forensics.errors import UserError
from forensics.protocols import Renderer
from forensics.records import Step, Trajectory
from forensics.records.training_rows import TrainingRow


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
        if not _has_tokens(trajectory):
            trajectory, again = _tokenised(trajectory, policy), again + 1
        text = _text_of(trajectory, sources or {}, (advantages or {}).get(trajectory.id))
        texts += [text] if len(text) else []
    if again and say:
        say(
            f"{again} runs came without token ids and were tokenised again with the policy's"
            " rendering; what the policy drew may have been cut into other tokens"
        )
    return texts


def texts_of_training(rows: Iterable[TrainingRow], source: str = "after") -> list[TokenizedText]:
    """Texts of a training record's rows, with the advantages that the loss
    used. Raises `UserError` without tokens.
    """
    return [_text_of_training(row, source) for row in rows]


def plain_text(token_ids: Sequence[int], name: str, task: str | None = None) -> TokenizedText:
    """A text of which nothing is known but its tokens."""
    number = len(token_ids)
    return TokenizedText(
        note=TextNote(id=name, task=task or name),
        token_ids=np.asarray(token_ids, dtype=np.int32),
        step=np.full(number, PLAIN_TEXT, dtype=np.int32),
        sampled=np.zeros(number, dtype=bool),
        deciding=np.zeros(number, dtype=bool),
        advantage=np.full(number, np.nan, dtype=np.float32),
    )


def read_texts(
    path: Path | str, tokenizer: Any, *, length: int = 1024, field: str = "text"
) -> list[TokenizedText]:
    """Texts of a `.jsonl` file (one object a line with `field`) or of a text
    file (texts parted by empty lines).

    Each is cut into pieces of at most `length` tokens, which share a task.
    Raises `UserError` for what cannot be read.
    """
    file = Path(path).expanduser()
    if length < 1:
        raise UserError(f"length is {length}; give the tokens of a piece, at least 1")
    try:
        raw = list(_raw_texts(file, field))
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


def _raw_texts(file: Path, field: str) -> Iterator[str]:
    if file.suffix not in (".jsonl", ".ndjson"):
        yield from (part for part in file.read_text(encoding="utf-8").split("\n\n") if part.strip())
        return
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _field_of(line, field, f"{file} line {number}")


def _field_of(line: str, field: str, where: str) -> str:
    try:
        value = json.loads(line)[field]
    except (json.JSONDecodeError, KeyError, TypeError, IndexError):
        value = None
    if not isinstance(value, str):
        raise UserError(
            f'{where} is not an object with a text under "{field}"; mend the line or name another'
            " field"
        )
    return value


def _has_tokens(trajectory: Trajectory) -> bool:
    steps = trajectory.steps
    return all(
        step.token_ids is not None and (step.sampled is not None or step.role != "assistant")
        for step in steps
    )


def _text_of(
    trajectory: Trajectory, sources: Mapping[str, str], advantage: float | Sequence[float] | None
) -> TokenizedText:
    note = TextNote(
        id=trajectory.id,
        task=trajectory.task,
        source=sources.get(trajectory.policy, trajectory.policy),
        outcome=trajectory.outcome,
        steps=tuple(
            StepNote(role=s.role, kinds=s.kinds, channels=s.channels) for s in trajectory.steps
        ),
    )
    lengths = [len(step.token_ids or ()) for step in trajectory.steps]
    sampled = [
        flag
        for step, n in zip(trajectory.steps, lengths, strict=True)
        for flag in step.sampled or (False,) * n
    ]
    return _columns(
        note,
        [token for step in trajectory.steps for token in step.token_ids or ()],
        np.repeat(np.arange(len(lengths)), lengths),
        sampled,
        advantage,
    )


def _text_of_training(row: TrainingRow, source: str) -> TokenizedText:
    if row.token_ids is None or row.sampled is None:
        raise UserError(
            f"the training record's row {row.trajectory} has no token ids; record it with tokens"
        )
    note = TextNote(
        id=row.trajectory,
        task=row.task,
        source=source,
        outcome=row.outcome,
        steps=tuple(
            StepNote(role=role, kinds=kinds)
            for role, kinds in zip(row.step_roles, row.step_kinds, strict=True)
        ),
    )
    step = (
        np.searchsorted(np.asarray(row.step_starts), np.arange(len(row.token_ids)), side="right")
        - 1
    )
    advantage = row.advantage if row.token_advantages is None else row.token_advantages
    return _columns(note, row.token_ids, step, row.sampled, advantage)


def _columns(
    note: TextNote,
    token_ids: Sequence[int],
    step: np.ndarray,
    sampled: Sequence[bool],
    advantage: float | Sequence[float] | None,
) -> TokenizedText:
    drawn = np.asarray(sampled, dtype=bool)
    given = np.full(len(drawn), np.nan, dtype=np.float32)
    if advantage is not None:
        if not np.isscalar(advantage) and len(advantage) != drawn.sum():  # type: ignore[arg-type]
            raise UserError(
                f"{note.id} has {int(drawn.sum())} sampled tokens and {len(advantage)} advantages; "  # type: ignore[arg-type]
                "give one for each, or one for all"
            )
        given[drawn] = advantage
    return TokenizedText(
        note=note,
        token_ids=np.asarray(token_ids, dtype=np.int32),
        step=np.asarray(step, dtype=np.int32),
        sampled=drawn,
        deciding=_deciding(drawn, step),
        advantage=given,
    )


def _deciding(sampled: np.ndarray, step: np.ndarray) -> np.ndarray:
    """`[tokens]`: whether the next token is the first that the policy drew in
    its step.

    Where steps are not known, an action is a run of sampled tokens.
    """
    first = sampled & ~np.append(False, sampled[:-1])
    if (step != PLAIN_TEXT).all():
        drawn = np.flatnonzero(sampled)
        first = np.zeros(len(sampled), dtype=bool)
        first[drawn[np.unique(step[drawn], return_index=True)[1]]] = True
    return np.append(first[1:], False)


def _tokenised(trajectory: Trajectory, policy: Any) -> Trajectory:
    if policy is None:
        raise UserError(
            f"trajectory {trajectory.id} has no token ids, or does not say which were sampled; give"
            " a policy, whose rendering tokenises it again"
        )
    return trajectory.model_copy(
        update={"steps": tuple(_rendered(trajectory, policy.renderer, policy.tokenizer))}
    )


def _rendered(trajectory: Trajectory, renderer: Renderer, tokenizer: Any) -> Iterator[Step]:
    """The steps with tokens: system and user as one prompt, then the policy and
    its world in turns.
    """
    steps = trajectory.steps
    head = 2 if [step.role for step in steps[:2]] == ["system", "user"] else 1
    roles = [step.role for step in steps[head:]]
    if steps[head - 1].role != "user" or any(
        role != ("tool", "assistant")[i % 2 == 0] for i, role in enumerate(roles)
    ):
        raise UserError(
            f"trajectory {trajectory.id} has no token ids and its messages do not alternate between"
            " policy and world, so it cannot be tokenised again; give a log with token ids"
        )
    if head == 2:
        yield _given(steps[0], [])
    yield _given(
        steps[head - 1],
        renderer.prompt(steps[head - 1].text, steps[0].text if head == 2 else None),
    )
    action: list[int] = []
    for i, step in enumerate(steps[head:], head):
        if step.role == "assistant":
            action = list(tokenizer(step.text, add_special_tokens=False)["input_ids"])
            yield step.model_copy(
                update={
                    "token_ids": tuple(action),
                    "sampled": (True,) * len(action),
                    "logprobs": None,
                }
            )
        else:  # a last reply is followed by nothing, so the policy never read it
            yield _given(step, renderer.reply(step.text, action) if i + 1 < len(steps) else [])


def _given(step: Step, ids: Sequence[int]) -> Step:
    return step.model_copy(
        update={"token_ids": tuple(ids), "sampled": (False,) * len(ids), "logprobs": None}
    )
