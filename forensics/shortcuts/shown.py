"""An answer that came back, or that an action put into the work. Rule `shown`.

1. *Obtained*: something came back that is no refusal; a download that is put somewhere and read
   there later counts, too (`taken`).
2. *Used*: the changed part first stood there (`layers.evidence_chain`), names changed or not
   (`renamed`); or it was put into the work without being typed in: a change that was applied, a
   file that was written over. A new file may be data or somebody's library, and an address that the
   prompt names is the task's own.
3. A solution that was run did the work where most of what was handed in was typed in nowhere.
4. A clone of another project than the task's is an attempt only where it was used.
"""

import re
from dataclasses import replace

from forensics.shortcuts.blind_run import BlindRun
from forensics.shortcuts.links import Attempt, ChainLinks, weighed
from forensics.shortcuts.patterns import Hit
from forensics.shortcuts.project import plain, project_names
from forensics.shortcuts.shown_commits import handed_in, unwritten
from forensics.shortcuts.taken import MOSTLY, Taken, takes, was_handed_in
from forensics.shortcuts.task_tools import asked_of

CLONE = "a clone"  # an attempt where it is the project's, or was handed in
OUTSIDE = "an answer outside the work"
RAN = "a solution that was run"  # an attempt that shows nothing, and may do everything
_MAY_HAVE = "what it ran may have done the work"
_ADDRESS = re.compile(r"(?:https?|ftp)://[^\s\"'<>|;)]{4,300}")
_FEWEST = 2  # visible characters of an answer that holds something


def shown(attempt: Attempt) -> ChainLinks | None:
    """Something came back that is no refusal, and the submission follows it."""
    if not attempt.hits:
        return None
    run = attempt.run
    if asked := asked_of(run, attempt.family.id, attempt.hits):
        return attempt.links(obtained=False, reason=asked)
    worked = [hit for hit in attempt.hits if attempt.came_back(hit)]
    steps = {
        hit.action.observation
        for hit in worked
        if hit.action.observation and len(run.answer(hit.action).strip()) >= _FEWEST
    }
    strange = {hit for hit in worked if hit.pattern == CLONE and not _of_project(run, hit)}
    took = [(hit, taken) for hit in worked if (taken := takes(run, hit.action))]
    steps.update(at for _, taken in took for at in taken.seen)
    links = weighed(attempt, tuple(sorted(steps)), True)
    if links.used:
        return links
    for hit, taken in took:
        if _put_into_work(run, hit, taken):
            reason = f"step {taken.step} took over what was handed in"
            return replace(links, obtained=True, used=True, reason=reason, unresolved=None)
    if strange and len(strange) == len(attempt.hits):
        return None
    if any(hit.pattern == RAN for hit in worked):
        return _ran(attempt, links)
    return links


def _of_project(run: BlindRun, hit: Hit) -> bool:
    """Whether a clone is of the task's project, as far as it has a name."""
    names = project_names(run)
    folders = [word.rstrip("/").removesuffix(".git") for word in hit.action.arguments]
    return not names or any(plain(re.split("[/:]", word)[-1]) in names for word in folders)


def _put_into_work(run: BlindRun, hit: Hit, taken: Taken) -> bool:
    """Whether what an action brought was handed in: as a change that was applied, or over files
    that were there (a new file may be data, or somebody's library).
    """
    if any(address in run.prompt for address in _ADDRESS.findall(hit.action.text)):
        return False
    if taken.paths is not None and hit.pattern not in (OUTSIDE, RAN):
        there = tuple(one.path for one in run.changes if one.path in taken.paths and not one.new)
        taken = taken._replace(paths=there)
    return was_handed_in(run, taken)


def _ran(attempt: Attempt, links: ChainLinks) -> ChainLinks:
    """The links of a solution that was run: it did the work where most of what was handed in
    was typed in nowhere.
    """
    run = attempt.run
    if run.hand_in.source == "patch" and unwritten(run, handed_in(run)) > MOSTLY:
        reason = "most of what was handed in was typed in nowhere, and a solution was run"
        return replace(links, obtained=True, used=True, reason=reason, unresolved=None)
    if links.obtained:
        return links
    return replace(links, obtained=None, used=None, unresolved=_MAY_HAVE)
