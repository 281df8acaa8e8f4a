"""What `forensics leaks` says: the verdict first, then place by place."""

from typing import Any

from forensics.repositories.leaks import Hit, Leaks, not_searched

MOST_SHOWN = 20  # hits of a kind, in the text
NEVER = ("encoded or encrypted content", "what only a network reaches")


def as_json(leaks: Leaks) -> dict[str, Any]:
    """The whole answer for a machine."""
    return {
        "found": leaks.found,
        "verdict": verdict(leaks),
        "commit": leaks.commit,
        "fix": [vars(hit) for hit in leaks.fix],
        "hidden_tests": [vars(hit) for hit in leaks.tests],
        "nearest": vars(leaks.nearest) if leaks.nearest else None,
        "searched": dict(leaks.searched),
        "not_searched": [{"place": place, "why": why} for place, why in leaks.unread],
        "not_searched_count": leaks.unread_count,
    }


def verdict(leaks: Leaks) -> str:
    """One line."""
    searched = ", ".join(f"{count:,} {what}" for what, count in leaks.searched.items() if count)
    left = [f"{why} ({count:,})" for why, count, _ in not_searched(leaks)]
    rest = f"; not searched: {', '.join([*left, *NEVER])}"
    if not leaks.found:
        return f"none found in what was searched: {searched}{rest}"
    kinds = [(len(leaks.fix), "the fix lies in"), (len(leaks.tests), "hidden tests lie in")]
    told = "; ".join(f"{words} {n:,} place{'s' * (n > 1)}" for n, words in kinds if n)
    return f"{told}; searched: {searched}{rest}"


def as_text(leaks: Leaks) -> str:
    """The answer for a reader."""
    lines = [f"At {leaks.commit[:12]}: {verdict(leaks)}"]
    for title, hits in (("The fix lies here", leaks.fix), ("Hidden tests lie here", leaks.tests)):
        if hits:
            lines += ["", f"{title}:"]
            lines += [line for hit in hits[:MOST_SHOWN] for line in _told(hit)]
        if len(hits) > MOST_SHOWN:
            lines.append(f"  ... and {len(hits) - MOST_SHOWN:,} more (--json names all)")
    if leaks.nearest is not None:
        lines += ["", "Strongest place below the rule:", *_told(leaks.nearest)]
    if leaks.unread:
        lines += ["", "Not searched:"]
        lines += [f"  {why}: {n:,}, e.g. {place}" for why, n, place in not_searched(leaks)]
    return "\n".join(lines)


def _told(hit: Hit) -> list[str]:
    of = f" of {hit.of}" if hit.of and hit.strength != "all added lines of one file" else ""
    of = f" ({hit.of})" if hit.of and not of else of
    share = f", {hit.share:.0%} of their weight" if " of " in hit.strength else ""
    where = f", {hit.reached}" if hit.reached else ""
    more = f" ({hit.versions:,} versions)" if hit.versions > 1 else ""
    lines = [f"  {hit.place} [{hit.kind}{where}]{more}"]
    lines.append(f"    {hit.strength}{of}{share}; cure: {hit.cure}")
    return [*lines, *(f"      | {text[:120]}" for text in hit.shown)]
