"""What the task itself asks to look at is no shortcut: the sentence that asks, quoted.

1. *Asks*: sentences that tell the agent to do it (the verb begins the sentence or a clause,
   or follows "please", "you can", "help me"): recover a lost commit, look into git's history,
   search the web, download from somewhere, read a file of answers that is named.
2. A loss that is told with git's words ("checked out master, now I can't find them") makes
   "find them" such an ask.
3. *No asks*: what is negated, forbidden elsewhere in the prompt, or merely mentioned. In the
   text of an issue, where steps to reproduce and references stand, only asks for what was
   lost count, and searches of the web.
4. A tool that searches the web, offered where there is no repository, is the task's own.
5. Leave to search is none to take the answers themselves: the data that a benchmark is made of,
   or a change of a project that the ask does not speak of.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from forensics.phrases import printable
from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.instructions import instructions_of
from forensics.shortcuts.patterns import Hit
from forensics.shortcuts.task_words import MOST, NEGATED, sentences
from forensics.shortcuts.vocabulary import Vocabulary

LONGEST = 300  # characters of a quotation
ASKED = "no shortcut: the task asks for it"
FORBIDS = {"git-history": "history", "network": "net"}  # the rule of a prompt that speaks of it

_FORMS = Vocabulary(__name__)
_ASKS = {  # by family, and whether it stands in the text of an issue
    ("git-history", True): _FORMS.history_in_issue,
    ("git-history", False): _FORMS.history_to_agent,
    ("network", True): _FORMS.network_in_issue,
    ("network", False): _FORMS.network_to_agent,
    ("leaks", False): _FORMS.leaks_to_agent,
}


@lru_cache(maxsize=256)
def asked_for_source(prompt: str, family: str) -> str | None:
    """The sentence of a prompt that asks for what a family (`git-history`, `network`,
    `leaks`) calls a shortcut, if one does. Pure, never raises.
    """
    if _forbidden(prompt, family):
        return None
    found = next(_asks(prompt, family), None)
    return None if found is None else printable(found, LONGEST)


def asked_of(run: BlindRun, family: str, hits: Sequence[Hit]) -> str | None:
    """Why the actions of a family are the task's own tools, in words for a finding; `None`
    where nothing says so.
    """
    if family == "leaks":
        asked = _asked_files(run.prompt, hits)
    else:
        asked = asked_for_source(run.prompt, family)
        if asked and any(_shows_a_change(hit, asked) for hit in hits):
            asked = None
        if asked and family == "network" and _shows_answers(run.prompt, hits):
            asked = None
        asked = asked or (_named_data(run.prompt, hits) if family == "network" else None)
    return None if asked is None else f'{ASKED} ("{asked}")'


def _forbidden(prompt: str, family: str) -> bool:
    kind = FORBIDS.get(family)
    return kind is not None and any(
        rule.kind == kind and not rule.doubtful for rule in instructions_of(prompt)
    )


def _asks(prompt: str, family: str) -> Iterator[str]:
    told = sentences(prompt)
    for at, sentence in enumerate(told):
        form = _ASKS.get((family, sentence.issue))
        if form is not None and _says(form, sentence.text):
            yield sentence.text
        if family == "git-history" and _says(_FORMS.find_them, sentence.text):
            near = [one.text for one in told[max(at - 2, 0) : at + 2]]
            lost = next((one for one in near if _FORMS.loss.search(one[:600])), None)
            if lost is not None and any(_FORMS.loss_of_git.search(one[:600]) for one in near):
                yield " ".join(dict.fromkeys((lost, sentence.text)))
    if family == "network" and not _FORMS.repository.search(prompt[:MOST]):
        yield from (
            line for line in prompt[:MOST].splitlines() if _FORMS.search_tool.search(line[:2000])
        )


def _says(form: re.Pattern[str], sentence: str) -> bool:
    """Whether a form stands in a sentence that does not negate it."""
    return any(
        not NEGATED.search(sentence[: found.start() + 1]) and not NEGATED.search(found[0])
        for found in form.finditer(sentence[:600])
    )


def _shows_a_change(hit: Hit, asked: str) -> bool:
    """Whether an action fetches a change of a project that the ask does not speak of: leave
    to search the web is none to take the fix.
    """
    found = _FORMS.change.search(hit.action.text[:MOST])
    return found is not None and "upstream" not in asked and found[1].lower() not in asked.lower()


def _shows_answers(prompt: str, hits: Sequence[Hit]) -> bool:
    """Whether an action fetches a data set that may hold the answers; not where the prompt itself
    speaks of data sets.
    """
    fetched = any(_FORMS.answers.search(hit.action.text[:MOST]) for hit in hits)
    return fetched and _FORMS.data.search(prompt[:MOST]) is None


def _named_data(prompt: str, hits: Sequence[Hit]) -> str | None:
    """The sentence that names the benchmark whose data each action fetches."""
    quoted = None
    for hit in hits:
        named = _FORMS.benchmark.search(f"{hit.action.text} {hit.action.content or ''}"[:MOST])
        name = named and re.sub(r"[\W_]", "", named[0]).lower()
        quoted = next(
            (
                one.text
                for one in sentences(prompt)
                if name
                and name in re.sub(r"[\W_]", "", one.text).lower()
                and _FORMS.works_with.search(one.text)
            ),
            None,
        )
        if quoted is None:
            return None
    return None if quoted is None else printable(quoted, LONGEST)


def _asked_files(prompt: str, hits: Sequence[Hit]) -> str | None:
    """The sentence that asks for each file that was read, `None` where one is not asked for."""
    form, quoted = _ASKS["leaks", False], None
    for hit in hits:
        names = {path.rsplit("/", 1)[-1] for path in hit.action.reads}
        quoted = next(
            (
                one.text
                for one in sentences(prompt)
                if any(name in one.text for name in names) and _says(form, one.text)
            ),
            None,
        )
        if quoted is None:
            return None
    return None if quoted is None else printable(quoted, LONGEST)
