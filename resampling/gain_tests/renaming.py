"""Renaming: does the gain hang on names that no skill needs?

A cue in a prompt (`build amber`) can be used by inference, without any action
that could be refused. Under other names it misleads; a skill reads the names as
they are.

1. *Certificate*: names, ids and dates are found in the case's own runs
   (`identifiers`). Where there are none, nothing is played.
2. *Jointly*: both policies once more with all of them renamed, lists of names
   shuffled (`RenamedWorld`), coupled with the plain runs: runs that meet no
   renamed word are equal. At most a fifth of the gain lost: cleared.
3. Else by role, on fewer tasks, so that what carries is named.
4. *Name or question?* What the prompt alone holds may be the question itself,
   dates may be reckoned with, and the order of a list may matter. Such a find
   counts where the environment's `fields` say what the question is, or where the
   policy before training shows that the tasks are solved without: it wins more
   than `better` times as often as hand-ins of other tasks would, and keeps
   surely at least `kept` of its score under other names. Else what is surely a
   name is renamed alone; if that is no find, the test stays open.
5. Words of the declared question stay, but where there is nothing else to rename.
   Then they are renamed, and a loss accuses nobody: if the policy before
   training surely loses more than `kept` of its score too, they are the question,
   as the environment says; if it loses less, what is newly needed counts
   (`new_reliance`), and clears the test or leaves it open.

The control is the harm to the policy before training (`placebo_over_bar`). A
second one, renaming what no hand-in depends on, is left out: another pass. Ours
(PROVENANCE, section 2). Not seen: cues that are numbers, free text, or a place
that only some tasks have; those are for sufficiency and variants.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache

import numpy as np

from forensics.case import Case, Rollouts
from forensics.errors import MissingInput
from forensics.instruments import Plays, gain_test
from forensics.layers import BEFORE, OPEN
from forensics.phrases import plural, printable
from forensics.protocols import Alteration, Environment
from forensics.records import Evidence, GainTest, Scalar, Undefined, content_hash
from forensics.runs import Condition
from forensics.verdict import JOINED
from resampling.ablation.refusal import scrubbed_world
from resampling.ablation.refused_runs import chosen_tasks
from resampling.gain_tests.altered_worlds import AlteredWorld, alteration
from resampling.gain_tests.fields import by_the_author
from resampling.gain_tests.gain_study import (
    ALTERED,
    Comparison,
    GainAnswers,
    GainStudy,
    new_reliance,
    nothing_won,
    require_known_gain,
    study_of,
)
from resampling.gain_tests.identifiers import (
    DATE,
    ID,
    LISTED,
    WORD,
    Identifiers,
    identifiers,
    question_of,
    stem_of,
)

WEEKS = range(8, 261)
DIGITS, LETTERS = "0123456789", "abcdef"
_PART = re.compile(r"[^\W_]+")
Names = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Renaming:
    """*The same world under other names*: what a policy reads is renamed, what it
    does is renamed back, and the inner world grades.

    1. Names: for each episode a permutation of every role's words, drawn from the
       task and the seed, that leaves none in its place. Every word of the role is
       renamed wherever it stands, alone or as a part (`test_kiwi`), in small
       letters, Capitalised or in CAPITALS; so two names never become one, and a
       policy reads names of the population that it knows.
    2. Ids: letter by letter, digits for digits and letters for letters, moved on by
       a number drawn from what stands before: ids that begin alike still do, and
       what a policy makes up is renamed back alike.
    3. Dates: all moved by the same number of weeks, up to five years either way:
       order, distances and days of the week stay.
    4. Order: lists in the prompt of three or more names of a role, between commas or
       under bullets, are shuffled.

    What is renamed: words of each role, ids and dates but the `fixed` ones.
    `lists`: words whose lists are shuffled.
    """

    roles: tuple[tuple[str, ...], ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()
    ids: bool = False
    dates: bool = False
    fixed: frozenset[str] = frozenset()

    @property
    def alteration(self) -> Alteration:
        content = [self.roles, self.lists, self.ids, self.dates, sorted(self.fixed)]
        return alteration(
            f"renamed:{content_hash(content)}",
            lambda inner, name: RenamedWorld(inner, name, self),
            "names, ids or dates renamed",
        )


class RenamedWorld(AlteredWorld):
    """The inner world by other names."""

    def __init__(self, inner: Environment, alteration: str, renaming: Renaming) -> None:
        super().__init__(inner, alteration)
        self._renaming = renaming
        self._episode = Episode(renaming, "")
        self._prompts = False

    def begin(self, task: str, seed: int) -> None:
        self._episode = Episode(self._renaming, f"{task}/{seed}")
        self._prompts = True

    def shown(self, text: str) -> str:
        there = self._episode
        return there.shuffled(there.renamed(text)) if self._prompts else there.renamed(text)

    def taken(self, action: str) -> str:
        self._prompts = False
        return self._episode.renamed_back(action)


class Episode:
    """The names of one episode, drawn from its key."""

    def __init__(self, renaming: Renaming, key: str) -> None:
        self._renaming, self._key = renaming, key
        self._names, self._back = drawn_names(renaming.roles, key)
        weeks = WEEKS[_number(key, "weeks") % len(WEEKS)]
        self._shift = timedelta(weeks=weeks if _number(key, "way") % 2 else -weeks)

    def renamed(self, text: str) -> str:
        """A text of the inner world as the policy reads it."""
        text = self._values(text, 1)
        return WORD.sub(lambda found: _renamed(found[0], self._names), text)

    def renamed_back(self, text: str) -> str:
        """A text of the policy as the inner world reads it."""
        text = WORD.sub(lambda found: _renamed(found[0], self._back), text)
        return self._values(text, -1)

    def shuffled(self, text: str) -> str:
        """A text of the policy's with its lists of names in another order."""
        return LISTED.sub(self._reordered, text) if self._renaming.lists else text

    def _values(self, text: str, way: int) -> str:
        if self._renaming.dates:
            text = DATE.sub(lambda found: self._moved(found[0], way), text)
        if self._renaming.ids:
            text = ID.sub(lambda found: self._other_id(found[0], way), text)
        return text

    def _moved(self, text: str, way: int) -> str:
        if text in self._renaming.fixed:
            return text
        try:
            return (date.fromisoformat(text) + way * self._shift).isoformat()
        except (ValueError, OverflowError):
            return text

    def _other_id(self, text: str, way: int) -> str:
        stem = stem_of(text)
        if text in self._renaming.fixed:
            return text
        other = ""
        for place, letter in enumerate(text[len(stem) :]):
            before = (text if way > 0 else stem + other)[: len(stem) + place]
            other += other_letter(letter, f"{self._key}/{before}", bool(stem) and not place, way)
        return stem + other

    def _reordered(self, found: re.Match[str]) -> str:
        names = [match.span() for match in WORD.finditer(found[0])]
        words = [found[0][start:end] for start, end in names]
        if not any(set(words) <= set(role) for role in self._renaming.lists):
            return found[0]
        order = _stream(self._key, "order").permutation(len(words))
        text, at = "", 0
        for (start, end), place in zip(names, order, strict=True):
            text += found[0][at:start] + words[place]
            at = end
        return text + found[0][at:]


def _renamed(word: str, names: Names) -> str:
    if word in names:
        return names[word]
    return _PART.sub(lambda part: names.get(part[0], part[0]), word)


@lru_cache(maxsize=64)
def drawn_names(roles: tuple[tuple[str, ...], ...], key: str) -> tuple[Names, Names]:
    """Another word for each, and the way back."""
    names: dict[str, str] = {}
    for number, role in enumerate(roles):
        for words in _spellings(role):
            circle = [words[i] for i in _stream(key, f"role {number}").permutation(len(words))]
            for word, other in zip(circle, [*circle[1:], circle[0]], strict=True):
                names.update(zip(word, other, strict=True))
    return names, {other: word for word, other in names.items()}


@lru_cache(maxsize=64)
def _spellings(role: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], ...], ...]:
    """The words of a role that change places with each other, each in all its
    spellings: those in small letters, and the others.
    """
    small = tuple((w, w.upper(), w.capitalize()) for w in role if w == w.lower())
    other = tuple((w,) for w in role if w != w.lower())
    return tuple(words for words in (small, other) if len(words) > 1)


@lru_cache(maxsize=65_536)
def other_letter(letter: str, key: str, first: bool, way: int) -> str:
    """Another one of its kind; the `first` digit of a number stays none or not."""
    kind = DIGITS if letter.isdigit() else LETTERS if letter in LETTERS else letter
    if first and kind == DIGITS:
        if letter == "0":
            return letter
        kind = DIGITS[1:]
    if len(kind) == 1:
        return letter
    step = 1 + _number(key, "letter") % (len(kind) - 1)
    return kind[(kind.index(letter) + way * step) % len(kind)]


def _stream(key: str, what: str) -> np.random.Generator:
    return np.random.default_rng(_number(key, what))


def _number(key: str, what: str) -> int:
    digest = hashlib.sha256(f"renaming/{what}/{key}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


RENAMING = GainTest(
    name="renaming",
    kind="needless",
    excludes="cues in what is read",
    place=50,
    held="go away when what no skill needs is renamed",
    found="goes away when what no skill needs is renamed or reordered{names}",
    todo="declare it as a channel, or mend the tasks that give it away",
)
METHOD = "both policies in the world by other names, coupled with the plain runs"
ACCEPT_IT = "Accept it with `--accept renaming`, or rely on sufficiency and variants."
NO_CURE = "Nothing needs to be done."
CLEARED = "What newly hangs on words of the question accuses nobody."
IDS, DATES, ORDER = "ids", "dates", "the order of lists"


@dataclass(frozen=True, kw_only=True)
class RenamingConfig:
    """`tasks` on which each role is renamed by itself, `most_roles` of them.
    `order`: shuffle lists too. `kept` of the score before training, `better` than
    the hand-ins of other tasks: what shows that names are no question.
    """

    tasks: int = 100
    most_roles: int = 4
    order: bool = True
    kept: float = 0.8
    better: float = 2.0


def plays(case: Case, config: RenamingConfig) -> Plays:
    """Jointly, which is what is likely, once more without what may be the question, and
    by role; of the parts that there are, once the plain runs are there.
    """
    require_known_gain(case)
    passes, roles = 2, config.most_roles
    if case.has_played(Condition(scrubbed=(world := scrubbed_world(case)))):
        known = identifiers(case, world)
        parts = parts_of_all(known, config) or of_question(known)
        passes = bool(parts) + (0 < sum(part.sure for part in parts) < len(parts))
        roles = min(roles, len(parts)) if len(parts) > 1 else 0
    tasks = len(case.tasks)
    by_role = roles * min(config.tasks, tasks)
    played = Plays((passes > 0) * tasks, passes * tasks + by_role)
    return played.times((1 + len(case.afters)) * case.budget.samples)


@gain_test(RENAMING, config=RenamingConfig(), episodes=plays)
def renaming(case: Case, config: RenamingConfig) -> Iterator[Evidence | Undefined]:
    """Raises `MissingInput` for what the case cannot give."""
    study = study_of(case)
    say = GainAnswers.of(renaming, case, config, METHOD)
    known = identifiers(case, study.world)
    whole = parts_of_all(known, config)
    if whole:
        yield from RenamingStudy(study=study, config=config, known=known, say=say).answers(whole)
    elif asked := of_question(known):
        yield from RenamingStudy(study=study, config=config, known=known, say=say).asked(asked)
    elif known.left_out:
        yield from say.not_tested(
            f"What differs from prompt to prompt cannot be renamed ({_listed(known.left_out)}).",
            ACCEPT_IT,
        )
    else:
        yield from say.not_applicable(
            "No name, id or date stands in an aligned place of the prompts: nothing to rename.",
            study.gain,
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is renamed together. `sure`: it is a name and nothing else."""

    name: str
    renaming: Renaming
    sure: bool


def parts_of_all(known: Identifiers, config: RenamingConfig) -> tuple[Part, ...]:
    """Everything that can be renamed, part by part."""
    fixed = known.fixed
    parts = [
        Part(
            name=role.name,
            renaming=Renaming(roles=(role.words,)),
            sure=role.linked or (known.declared and not role.asked),
        )
        for role in known.roles
    ]
    if known.ids:
        parts.append(Part(name=IDS, renaming=Renaming(ids=True, fixed=fixed), sure=True))
    if known.dates:
        dates = Renaming(dates=True, fixed=fixed)
        parts.append(Part(name=DATES, renaming=dates, sure=False))
    if config.order and known.lists:
        words = tuple(role.words for role in known.roles)
        parts.append(Part(name=ORDER, renaming=Renaming(lists=words), sure=False))
    return tuple(parts)


def of_question(known: Identifiers) -> tuple[Part, ...]:
    """The names in the declared question."""
    roles = ((role.name, Renaming(roles=(role.words,))) for role in known.question)
    return tuple(Part(name=name, renaming=renamed, sure=False) for name, renamed in roles)


def together(parts: tuple[Part, ...]) -> Renaming:
    """All parts at once."""
    all_of = [part.renaming for part in parts]
    return Renaming(
        roles=tuple(role for one in all_of for role in one.roles),
        lists=tuple(role for one in all_of for role in one.lists),
        ids=any(one.ids for one in all_of),
        dates=any(one.dates for one in all_of),
        fixed=frozenset(value for one in all_of for value in one.fixed),
    )


@dataclass(frozen=True, kw_only=True)
class RenamingStudy:
    """Both policies under other names."""

    study: GainStudy
    config: RenamingConfig
    known: Identifiers
    say: GainAnswers

    def answers(self, parts: tuple[Part, ...]) -> Iterator[Evidence | Undefined]:
        """Every answer."""
        found = self._renamed(self.study, parts)
        yield from self._by_part(parts, found)
        sure = tuple(part for part in parts if part.sure)
        if not found.found or len(sure) == len(parts) or self._solved_without(found):
            yield from self._whole(parts, found)
            return
        if sure:
            alone = self._renamed(self.study, sure)
            if alone.found:
                yield from self._whole(sure, alone)
                return
        unsure = _listed([f"`{part.name}`" for part in parts if not part.sure])
        yield from self.say.not_tested(
            f"The gain is lost under other names ({unsure}); whether these are cues or the"
            " question itself cannot be told.",
            "Name the question in the environment's `fields`.",
        )

    def asked(self, parts: tuple[Part, ...]) -> Iterator[Evidence | Undefined]:
        """Every answer where only the declared question can be renamed."""
        found = self._renamed(self.study, parts)
        if not found.found:
            yield from self._by_part(parts, found)
            yield from self._whole(parts, found)
            return
        asked = question_of(self.study.case)
        assert asked is not None
        one = by_the_author(asked(self.study.case.tasks[0]))
        reason = f"Beside the question nothing can be renamed. {one}"
        left = found.estimate({(BEFORE, OPEN): 1 - self.config.kept, (BEFORE, ALTERED): -1.0})
        if left.low >= 0:
            reason += " The policy before training needs its words for nearly all that it wins."
            yield from self.say.not_applicable(reason, self.study.gain)
            return
        lost, afters = nothing_won(found.panel.tasks), len(self.study.case.afters)
        renamed = self.study.altered(together(parts).alteration).pair
        more = new_reliance(self.study, renamed, (lost, (lost,) * afters))
        if more.told and more.cleared:
            reason += " Some of the wins before training need its words. More than that"
            yield from self.say.whole(more, reason, "is", every=False)
            for question in RENAMING.questions[1:]:
                yield self.say.make.undefined(question, MissingInput(CLEARED, NO_CURE))
        else:
            reason += " The gain is lost under other names there; before training less is."
            yield from self.say.not_tested(reason, ACCEPT_IT)

    def _renamed(self, study: GainStudy, parts: tuple[Part, ...]) -> Comparison:
        return study.compare(study.altered(together(parts).alteration).pair)

    def _by_part(self, parts: tuple[Part, ...], found: Comparison) -> Iterator[Evidence]:
        """What all carry together and, where they are not cleared, each part."""
        together = JOINED.join(part.name for part in parts)
        yield self.say.carried(together, found, "Under other names: ")
        if found.cleared or len(parts) == 1:
            return
        few = replace(self.study, tasks=chosen_tasks(self.study.case.tasks, self.config.tasks))
        for part in parts[: self.config.most_roles]:
            alone = self._renamed(few, (part,))
            yield self.say.carried(part.name, alone, "Under other names: ")

    def _solved_without(self, found: Comparison) -> bool:
        """Whether the policy before training shows that no skill needs these names."""
        kept = found.estimate({(BEFORE, ALTERED): 1.0, (BEFORE, OPEN): -self.config.kept})
        before = found.estimate({(BEFORE, OPEN): 1.0})
        return kept.low >= 0 and before.low > self.config.better * guessed(self.study)

    def _whole(self, parts: tuple[Part, ...], found: Comparison) -> Iterator[Evidence]:
        names = _listed([f"`{part.name}`" for part in parts])
        equal, runs = unchanged(self.study, together(parts))
        diagnostics: dict[str, Scalar] = {
            "renamed": names,
            "left_out": _listed(self.known.left_out),
            "runs": runs,
            "runs_unchanged": equal,
        }
        summary = (
            f"Renamed for both: {printable(names, 200)}; {runs - equal:,} of"
            f" {plural(runs, 'run')} read a word of it."
        )
        yield from self.say.whole(found, summary, diagnostics=diagnostics)


def unchanged(study: GainStudy, renaming: Renaming) -> tuple[int, int]:
    """How many runs read and did the same, word for word, under other names, and of how many."""
    equal = runs = 0
    for side in study.sides:
        plain = _texts(study.runs(side))
        other = _texts(study.runs(side, renaming.alteration, study.tasks))
        equal += sum(plain.get(run) == texts for run, texts in other.items())
        runs += len(other)
    return equal, runs


def _texts(log: Rollouts) -> dict[tuple[str, int], str]:
    rows = log.rows("task", "sample", "steps.list.element.text")
    return {
        (row["task"], row["sample"]): content_hash([step["text"] for step in row["steps"]])
        for row in rows
    }


def guessed(study: GainStudy) -> float:
    """How often what was handed in on another task before training would have won
    here, as far as winning hand-ins are known.
    """
    all_handed: Counter[str | None] = Counter()
    own: dict[str, Counter[str | None]] = defaultdict(Counter)
    wins: dict[str, set[str]] = defaultdict(set)
    for side in study.sides:
        for row in study.runs(side).rows("task", "submission", "outcome"):
            task, handed = row["task"], row["submission"]
            if side == "before":
                own[task][handed] += 1
                all_handed[handed] += 1
            if handed is not None and (row["outcome"] or 0.0) > 0:
                wins[task].add(handed)
    rates = [
        sum(all_handed[won] - own[task][won] for won in wins[task])
        / max(all_handed.total() - own[task].total(), 1)
        for task in own
    ]
    return sum(rates) / max(len(rates), 1)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
