"""An episode's record as a run: `trajectory_of`."""

from collections.abc import Mapping, Sequence

from forensics.proxy.call_record import Call, EpisodeRecord
from forensics.readers.messages import steps_of
from forensics.readers.submission import submission_of
from forensics.readers.values import End, run_of
from forensics.records import Step, Trajectory
from forensics.records.trajectory import TOKEN_LIMIT


def trajectory_of(
    record: EpisodeRecord,
    *,
    id: str,
    task: str,
    policy: str,
    environment: str,
    sample: int = 0,
    without: Sequence[str] = (),
    rewards: Mapping[str, float | None] | None = None,
    outcome: float | None = None,
    submission: str | None = None,
    end: End = ("terminated", None),
) -> Trajectory:
    """The main conversation of an episode as the run that a log of the same chat gives, with the
    tokens that the server told. `end`: how it ended by its harness's word; an episode that is
    errored has no outcome, whatever was said of it.

    Every step has its token ids where each call's prompt goes on from the last one's text; else
    answers alone have theirs.
    """
    end = ("truncated", TOKEN_LIMIT) if record.cut and end[0] == "terminated" else end
    failed = record.errored is not None
    run = run_of(
        _with_tokens(steps_of(list(record.messages)), record),
        ("errored", record.errored) if failed else end,
        id=id,
        task=task,
        policy=policy,
        environment=environment,
        sample=sample,
        rewards=rewards,
        outcome=None if failed or end[0] == "errored" else outcome,
        work=submission_of(submission, finished=end[0] == "terminated"),
    )
    known = {"seed": record.seed, "without": tuple(without), "redraws": record.redraws}
    return run.model_copy(update=known)


def _with_tokens(steps: tuple[Step, ...], record: EpisodeRecord) -> list[Step]:
    calls, found = record.conversation, list(steps)
    spoken = [at for at, step in enumerate(steps) if step.role == "assistant"]
    if not calls or len(spoken) < len(calls):
        return found
    drawn = spoken[len(spoken) - len(calls) :]  # what stands before was given as a prompt
    before = _between(calls)
    if before is not None and all(at and steps[at - 1].role != "assistant" for at in drawn):
        found = [_given(step, ()) for step in found]
        for at, ids in zip(drawn, before, strict=True):
            found[at - 1] = _given(found[at - 1], ids)
    for at, call in zip(drawn, calls, strict=True):
        found[at] = _answered(steps[at], call)
    return found


def _between(calls: Sequence[Call]) -> list[tuple[int, ...]] | None:
    """What was read before each answer and behind the one before; `None` where the texts do not
    go on from each other.
    """
    found, text = [], tuple[int, ...]()
    for call in calls:
        draw = call.answer
        assert draw is not None
        prompt, ids = draw.prompt_ids, draw.token_ids
        if prompt is None or ids is None or prompt[: len(text)] != text:
            return None
        found.append(prompt[len(text) :])
        text = (*prompt, *ids)
    return found


def _given(step: Step, ids: tuple[int, ...]) -> Step:
    return step.model_copy(update={"token_ids": ids, "sampled": (False,) * len(ids)})


def _answered(step: Step, call: Call) -> Step:
    draw = call.answer
    assert draw is not None
    if draw.token_ids is None:
        return step
    drawn = {"token_ids": draw.token_ids, "sampled": (True,) * len(draw.token_ids)}
    return step.model_copy(update={**drawn, "logprobs": draw.logprobs})
