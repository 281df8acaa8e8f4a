"""A second reader: a language model reads the steps that findings cite and
answers one question about each.

1. *Questions*: each finding's flagged steps are quoted (`review_prompt`) under
   its family's question (`family`). The reviewer sees no finding, no
   score, no name of a run; the same text is asked about once.
2. *Order*: findings in an order drawn from the seed; each with yes as the first
   option and with no, which of them comes first drawn too. An answer that
   changes with the order of the options is none.
3. *Answers* are kept by the hash of what was asked (`review_client`), so that a
   review that was broken off goes on.
4. `review.jsonl` has a row for each finding, in the order of the findings, with
   yes, no, or null and the reason. The agreement with the rules is evidence of
   its own. No finding, label or bound changes.

How far the reviewer and the rules agree, by family: a share with its interval,
Cohen's kappa, and the counts.

1. Only findings count on which both say yes or no; how many are open on either
   side is told beside it.
2. *Share*: tasks are the independent units. With one finding for each task the
   interval is exact (Clopper and Pearson); with several it is that of
   `share`.
3. *Kappa* (Cohen 1960): the agreement above what the two shares of yes would
   give by chance; none where they leave nothing above it, which is so when both
   always say the same.

Agreement is no accuracy: neither of them is the truth.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryFile
from typing import IO, Any

from forensics.case import Case
from forensics.errors import MissingInput
from forensics.instruments import AnswerMaker
from forensics.phrases import percent, plural
from forensics.policies.completions import Declined, Unanswered
from forensics.records import Evidence, Provenance, Trajectory, Undefined, content_hash
from forensics.records.case_file import ReviewRow
from forensics.records.evidence import Scalar
from forensics.records.files import write_json_lines
from forensics.shortcuts.export import REVIEW, Key, findings_of, key_of, runs_of
from forensics.shortcuts.family import Rubric, rubric_of
from forensics.shortcuts.review_client import AnswerCache, ReviewClient, Stopped, each
from forensics.shortcuts.review_prompt import (
    VERSION,
    agreed_answer,
    messages,
    quoted_evidence,
    read_answer,
)
from forensics.shortcuts.reviewer import Reviewer
from forensics.statistics import Estimate, binomial, share_by_task

STORE = "review"  # the folder of answers
ORDERS = ("yes first", "no first")
WORDS = 1000  # characters of the reviewer's reasons that a row keeps
CITED = ("side", "trajectory", "family", "channel", "attempt_steps", "obtained_steps")
Told = tuple[bool | None, str]  # yes, no, or `None` with the reason


@dataclass(frozen=True, kw_only=True)
class Question:
    """A text that is asked about: where it lies in the file of texts (bytes),
    and its family's rubric.
    """

    start: int
    length: int
    rubric: Rubric


class Questions:
    """The texts of all findings, each once, in a file without a name; in memory
    only where they lie.
    """

    def __init__(self, case: Case, file: IO[bytes]) -> None:
        self.file, self.at = file, 0
        self.known: dict[str, Question] = {}
        self.of: dict[Key, str] = {}
        cited: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for row in findings_of(case.folder):
            kept = {name: row[name] for name in CITED}
            cited.setdefault(row["side"], {}).setdefault(row["trajectory"], []).append(kept)
        for side, rows in cited.items():
            for run in runs_of(case.stored[side, ()], rows):
                for row in rows[run.id]:
                    self._add(run, row)
        file.flush()

    def _add(self, run: Trajectory, row: dict[str, Any]) -> None:
        text = quoted_evidence(run, row["attempt_steps"], row["obtained_steps"])
        rubric, content = rubric_of(row["family"]), text.encode()
        name = content_hash([VERSION, rubric.question, rubric.yes, rubric.no, text], 24)
        self.of[key_of(row)] = name
        if name not in self.known:
            self.known[name] = Question(start=self.at, length=len(content), rubric=rubric)
            self.at += self.file.write(content)

    def text(self, name: str) -> str:
        question = self.known[name]
        return os.pread(self.file.fileno(), question.length, question.start).decode()


def review(case: Case, reviewer: Reviewer) -> tuple[Sequence[Evidence | Undefined], str | None]:
    """Review every finding of a case that was scanned; writes `review.jsonl`
    and returns the evidence, and why the review was broken off, one sentence
    (`None` where it was not).
    """
    provenance = Provenance(
        instrument="review",
        config={"model": reviewer.model, "prompt": VERSION},
        seed=case.seed,
        inputs=case.input_hashes(),
        code=case.code_version,
    )
    store = AnswerCache(case.folder / STORE / "answers.jsonl")
    asker = ReviewClient(reviewer, case.seed)
    try:
        with TemporaryFile(dir=case.folder / STORE) as file:
            questions = Questions(case, file)
            answers = _asked(questions, store, asker, reviewer, case)
    finally:
        asker.close()
        store.close()
    write_json_lines(
        case.folder / REVIEW, _rows(case.folder, questions.of, answers, reviewer.model)
    )
    if asker.stopped is not None:
        families = sorted({family for _, _, family, _ in questions.of})
        return not_reviewed(families, provenance), asker.stopped
    rows = map(json.loads, (case.folder / REVIEW).read_text(encoding="utf-8").splitlines())
    return agreement(rows, provenance), None


def _asked(
    questions: Questions, store: AnswerCache, asker: ReviewClient, reviewer: Reviewer, case: Case
) -> dict[str, dict[str, tuple[Told, str]]]:
    """For each question and order of the options: what was answered or why not,
    and in which words.
    """
    random = Random(content_hash(["review", case.seed]))
    names = sorted(questions.known)
    random.shuffle(names)
    calls = [(name, order) for name in names for order in random.sample(ORDERS, 2)]
    keys = {
        (name, order): content_hash([name, order, reviewer.model, case.seed], 24)
        for name, order in calls
    }
    if any(store.get(key) is None for key in keys.values()):
        with suppress(Stopped):  # every call below says so
            asker.start()

    def answer(call: tuple[str, str]) -> tuple[Told, str]:
        key, (name, order) = keys[call], call
        known = store.get(key)
        if known is None:
            chat = messages(
                questions.text(name), questions.known[name].rubric, yes_first=order == ORDERS[0]
            )
            try:
                known = asker.ask(chat)
            except (Declined, Unanswered) as error:
                return (None, f"the reviewer gave no answer: {error}"), ""
            except Stopped:
                return (None, "the reviewer was not asked, since it had stopped answering"), ""
            store.put(key, known)
        return read_answer(known, yes_first=order == ORDERS[0]), known

    found: dict[str, dict[str, tuple[Told, str]]] = {}
    for done, ((name, order), (told, words)) in enumerate(each(calls, answer, reviewer.at_once), 1):
        found.setdefault(name, {})[order] = (told, words[-WORDS:])
        case.progress("reviewing", done, len(calls))
    return found


def _rows(
    folder: Path,
    names: Mapping[Key, str],
    answers: Mapping[str, Mapping[str, tuple[Told, str]]],
    model: str,
) -> Iterator[ReviewRow]:
    """A row for each finding, in the order of the findings."""
    for row in findings_of(folder):
        rubric = rubric_of(row["family"])
        name = names[key_of(row)]
        told = answers[name]
        answer, why = agreed_answer({order: told[order][0] for order in ORDERS})
        yield ReviewRow(
            **{part: row[part] for part in ("side", "trajectory", "task", "family", "channel")},
            question=rubric.question,
            link=rubric.link,
            rule=row[rubric.link],
            answer=answer,
            undefined=why or None,
            orders={order: told[order][0][0] for order in ORDERS},
            words=told[ORDERS[0]][1].strip(),
            content=name,
            model=model,
        )


AGREEMENT = "review.agreement"
KAPPA = "review.kappa"
METHOD = "a language model reads the flagged steps"
CURE = "Scan more logs, or ask another reviewer; its answers and reasons are in review.jsonl."
Review = tuple[str, bool | None, bool | None]  # the task; what rule and reviewer say


def agreement(
    rows: Iterable[Mapping[str, Any]], provenance: Provenance
) -> list[Evidence | Undefined]:
    """Share and kappa for each family in reviews (`family`, `task`, `rule`,
    `answer`), and over all of them.
    """
    whole: list[Review] = []
    families: dict[str, list[Review]] = {}
    for row in rows:
        for reviews in (whole, families.setdefault(row["family"], [])):
            reviews.append((row["task"], row["rule"], row["answer"]))
    make = AnswerMaker(layer="review", method=METHOD, provenance=provenance)
    parts = [(None, whole), *sorted(families.items())] if families else []
    return [answer for about, reviews in parts for answer in _answers(make, about, reviews)]


def _answers(
    make: AnswerMaker, about: str | None, reviews: Sequence[Review]
) -> Iterator[Evidence | Undefined]:
    told = [
        (task, rule, answer)
        for task, rule, answer in reviews
        if rule is not None and answer is not None
    ]
    if not told:
        reason = "There is no finding on which both the rules and the reviewer say yes or no."
        for question in (AGREEMENT, KAPPA):
            yield make.undefined(question, MissingInput(reason, CURE), about)
        return
    both = Counter((rule, answer) for _, rule, answer in told)
    tasks = len({task for task, _, _ in told})
    counts: dict[str, Scalar] = {
        f"rule {rule}, reviewer {answer}": both[rule == "yes", answer == "yes"]
        for rule in ("yes", "no")
        for answer in ("yes", "no")
    }
    counts["rule open"] = sum(rule is None for _, rule, _ in reviews)
    counts["reviewer undefined"] = sum(answer is None for _, _, answer in reviews)
    shared: dict[str, Any] = {
        "about": about,
        "n": len(told),
        "clusters": tasks,
        "diagnostics": counts,
    }
    rate = (both[True, True] + both[False, False]) / len(told)
    where = "" if about is None else f" on {about}"
    yield make.evidence(
        AGREEMENT,
        _share(told, tasks) or rate,
        **shared,
        unit="share",
        summary=(
            f"Rules and reviewer agree{where} on {percent(rate)} of"
            f" {plural(len(told), 'finding')} of {plural(tasks, 'task')}; neither is the truth."
        ),
    )
    found = kappa(both)
    if found is None:
        reason = "Rules and reviewer say one and the same of every finding, which chance would give"
        yield make.undefined(KAPPA, MissingInput(f"{reason} too.", CURE), about)
        return
    summary = f"Cohen's kappa of rules and reviewer{where} is {found:.2f}."
    yield make.evidence(KAPPA, found, **shared, unit="kappa", summary=summary)


def _share(told: Sequence[Review], tasks: int) -> Estimate | None:
    """The share that agrees; `None` for findings of a single task, which give no interval."""
    if tasks < 2:
        return None
    if tasks == len(told):
        return binomial(sum(rule == answer for _, rule, answer in told), tasks)
    return share_by_task((task, rule == answer, 1) for task, rule, answer in told)


def kappa(both: Mapping[tuple[bool, bool], int]) -> float | None:
    """Cohen's kappa of a table of counts `[rule, reviewer]`; `None` where
    chance alone gives full agreement.
    """
    total = sum(both.values())
    if not total:
        return None
    seen = sum(both.get((same, same), 0) for same in (True, False)) / total
    by_rule, by_reviewer = (sum(n for pair, n in both.items() if pair[at]) / total for at in (0, 1))
    chance = by_rule * by_reviewer + (1 - by_rule) * (1 - by_reviewer)
    return None if chance >= 1 - 1e-12 else (seen - chance) / (1 - chance)


def not_reviewed(families: Sequence[str], provenance: Provenance) -> list[Undefined]:
    """What a review that was broken off leaves of the agreement."""
    missing = MissingInput(
        "The reviewer stopped answering before every finding was reviewed.",
        "Run the same command again with --resume; what was answered is not asked again.",
    )
    make = AnswerMaker(layer="review", method=METHOD, provenance=provenance)
    return [make.undefined(AGREEMENT, missing, about) for about in (None, *families)]
