"""What the runs themselves leave open: training noise that one run does not
show, runs that were lost or silent, terms that nothing touched.
"""

from collections.abc import Iterator

from forensics.phrases import percent, plural, printable
from forensics.records import Evidence
from forensics.records.verdict import Gap
from forensics.verdict.rule import REFUSED, G
from forensics.verdict.view import JOINED, Judgement, View

LOST_SHARE = 0.05
PROMPT = "prompt"  # what stands before a field of the prompt
LONGEST_REASON = 300


def unused_terms(judged: Judgement) -> Iterator[Gap]:
    """An allowed kind that no run tried: mistyped, or out of place. Of a field
    (`prompt:hint`, `look:paper:price`) only the kind before it is known.
    """
    joint = judged.view.answers(REFUSED).get(None)
    tried = joint.diagnostics.get("tried") if isinstance(joint, Evidence) else None
    if isinstance(tried, str):
        known = {*tried.split(", "), PROMPT}
        for kind in judged.view.terms.allowed:
            parts = {part.split(":")[0] for part in kind.split(JOINED) if ":" in part} or {kind}
            if not parts <= known:
                yield Gap(
                    text=f"{printable(kind)} is allowed, but no run tried it.",
                    measurement=(
                        f"Look how it is spelt; the runs tried {printable(tried, LONGEST_REASON)}."
                    ),
                    cost="no new runs",
                )


def seeds(judged: Judgement) -> Iterator[Gap]:
    """One training run says nothing about the next."""
    gain = judged.view.evidence(G)
    if gain is not None and gain.diagnostics.get("seeds") == 1:
        yield Gap(
            text=(
                "Training noise was not measured: there is one training run, so the verdict is"
                " about this checkpoint, not about the recipe."
            ),
            measurement=(
                "Train the same recipe with other seeds and give each as another `--after`."
            ),
            cost=(
                "about 4 more training runs (with fewer than 3 in all the intervals become too wide"
                " to use)"
            ),
        )


def lost_runs(judged: Judgement) -> Iterator[Gap]:
    """Many runs without a score."""
    gain = judged.view.evidence(G)
    lost = None if gain is None else gain.diagnostics.get("runs_dropped")
    if gain is not None and isinstance(lost, int) and lost > LOST_SHARE * (gain.n + lost):
        yield Gap(
            text=(
                f"{plural(lost, 'run')} errored or had no score and were left out; if that depends"
                " on the policy, the scores are biased."
            ),
            measurement="Find out why they errored and run them again.",
            cost=plural(lost, "episode"),
        )


def silent_runs(judged: Judgement) -> Iterator[Gap]:
    """Runs that the token budget kept from acting or cut off; where there are
    too many the gain is not measured.
    """
    before, after = (_stated(judged.view, f"never_acted_{side}") for side in ("before", "after"))
    if before or after:
        yield Gap(
            text=(
                f"{percent(before)} of the runs before training and {percent(after)} of those after"
                " it never acted, as where a prompt leaves no room for an action; they count as"
                " lost."
            ),
            measurement=(
                "Raise `--max-tokens` above the longest prompt, or leave the longest tasks out."
            ),
            cost="one run of both sides",
        )
    before, after = (_stated(judged.view, f"cut_off_{side}") for side in ("before", "after"))
    if max(before, after) > LOST_SHARE:
        yield Gap(
            text=(
                f"{percent(before)} of the runs before training and {percent(after)} of those after"
                " it were cut off by the token budget, in the world where most were; they count as"
                " lost."
            ),
            measurement="Raise `--max-tokens`.",
            cost="one run of both sides",
        )


def _stated(view: View, name: str) -> float:
    """A share of runs that the gain states beside itself, 0 where it does not."""
    gain = view.evidence(G)
    value = None if gain is None else gain.diagnostics.get(name)
    return value if isinstance(value, float) else 0.0
