"""Is some part of the question enough for the gain, and newly so?

The question is known by its author's word alone, and a cue may stand in it: the
options of a quiz, of which one differs from all others. A skill needs the rest of it
as well. Where no question is named, all of the prompt may be it.

1. *Parts*: the fields that the question is made of. They are found by alignment as
   those of the prompts are (`fields`), the question not being named.
2. *Worlds*: the task's own prompt, in which the rest of the question is another
   task's (`shadow`). In the control all of it is.
3. The smallest parts (`search`) that are enough alone, and newly so. Where *before* wins too
   little to tell how newly, a single field among several is told all the same: a skill
   needs all that is asked. Whole questions are enough alone, and not told.

A find is a question to the reader, as that of `needed_shows` is.

Ours. It cannot see a part that was enough for as many wins of *before*, or anything where
prompts do not align.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from forensics.protocols import Alteration
from forensics.verdict import JOINED
from resampling.gain_tests.altered_worlds import Kept, Plan, shadow
from resampling.gain_tests.fields import NEARLY_ALL, PREFIX, QUESTION, PromptFields, prompt_fields
from resampling.gain_tests.gain_study import GainStudy
from resampling.gain_tests.search import Found, Limits, Search, Subsets


def prompts_of(study: GainStudy, but: tuple[str, ...] = ()) -> PromptFields:
    """The fields of all of a case's prompts in the world of a study; `but`: of those
    that are declared not these.
    """
    case, world = study.case, study.world
    scrubbed = case.world(world)
    return case.kept(("prompts", world, but), lambda: prompt_fields(scrubbed, case.tasks, but))


@dataclass(frozen=True)
class PromptPart:
    """Some fields of the prompts, in the order of their appearance."""

    atoms: tuple[str, ...]

    @property
    def name(self) -> str:
        return JOINED.join(PREFIX + one for one in self.atoms)

    @property
    def halves(self) -> "tuple[PromptPart, ...]":
        middle = len(self.atoms) // 2
        both = (self.atoms[:middle], self.atoms[middle:]) if middle else ()
        return tuple(PromptPart(one) for one in both)

    def but(self, atoms: Iterable[str]) -> "PromptPart":
        gone = set(atoms)
        return PromptPart(tuple(one for one in self.atoms if one not in gone))


@dataclass(frozen=True, kw_only=True, eq=False)
class PromptParts:
    """The question of a study in fields, by prompts that do not name it (`cut`) and
    by those that may (`named`). `limits`: of the search.
    """

    study: GainStudy
    named: PromptFields
    cut: PromptFields
    limits: Limits

    @cached_property
    def whole(self) -> PromptPart:
        """All fields but those that the reader allows; none where prompts do not align."""
        allowed = self.study.case.allowed
        names = [one for one in self.cut.names if PREFIX + one not in allowed and self._asked(one)]
        return PromptPart(tuple(names) if self.cut.aligns and len(names) > 1 else ())

    def _asked(self, name: str) -> bool:
        """Whether a field stands in the question of nearly every task that names one."""
        inside = [
            values[name] in self.named.values[task][QUESTION]
            for task in self.named.asked
            if name in (values := self.cut.values[task])
        ]
        return sum(inside) >= NEARLY_ALL * len(inside)

    def keeping(self, part: PromptPart | None) -> Alteration:
        """The world in which of all that is asked only this is the task's own."""
        rest = self.whole.but(part.atoms) if part else self.whole
        kept = Kept(names=frozenset(rest.atoms), own=True)
        return shadow(Plan.of(self.cut, self.study.case.seed, kept))

    @cached_property
    def found(self) -> list[Found[PromptPart]]:
        """The smallest parts that are surely enough alone, and newly so as far as can be told."""
        whole = self.whole
        if not whole.atoms:
            return []
        on = sorted(self.cut.aligned)
        search = Search[PromptPart](study=self.study, on=on, keeping=self.keeping)
        found = Subsets(search=search, limits=self.limits).of(whole)
        return [
            one
            for one in found
            if one.carries.found and (one.newly is not None or len(one.unit.atoms) == 1)
        ]
