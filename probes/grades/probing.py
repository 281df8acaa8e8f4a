"""Linear probes beside the grades of a log: what is asked of whom, and the answers as plain data and as text."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forensics.errors import UserError
from forensics.protocols import Channel
from forensics.records import content_hash
from forensics.report.numbers import plain
from forensics.wording import plural, printable
from probes.grades.logs import Log, runs_of
from probes.grades.opening import GradeRun
from probes.linear.decoders import Decoders, read_decoders
from probes.linear.logs import Probed, ProbeRequest, Read, probe_log, require_activations
from probes.linear.measuring import Measured
from probes.linear.ranking import Estimate
from probes.linear.telling import summary, table
from probes.scoring import Side

NO_CHANNEL: Final = "No shortcut is declared for this world, so the probes were asked about success alone."


@dataclass(frozen=True, kw_only=True)
class Probing:
    """What is asked, of which two checkpoints. Everything that can be refused was looked at when it was made."""

    request: ProbeRequest
    sides: tuple[Side, Side]
    reference: str
    channels: tuple[Channel, ...]
    decoders: Decoders | None

    @classmethod
    def of(
        cls, request: ProbeRequest, sides: tuple[Side, Side], identities: tuple[str, str], channels: Sequence[Channel],
        missing: list[str],
    ) -> "Probing":
        """`missing` is told where no shortcut is known. Raises `UserError`: a server, an unknown site, another diff."""
        if sides[0].identity is None:
            raise UserError("a server shows no activations; leave out --linear-probes, or leave out --server")
        if not channels:
            missing.append(NO_CHANNEL)
        decoders = None if request.diff is None else read_decoders(request.diff, identities[0])
        require_activations(sides[0].load(), (*request.sites, *([decoders.site] if decoders else ())))
        return cls(request=request, sides=sides, reference=identities[1], channels=tuple(channels), decoders=decoders)

    def stated(self) -> dict[str, Any]:
        """What identifies the probes."""
        told = None if self.decoders is None else content_hash([self.decoders.site, self.decoders.directions.tolist()])
        return {"tasks": self.request.tasks, "sites": list(self.request.sites), "diff": told}

    def probes(
        self, asked: GradeRun, log: Log, out: Path, progress: Callable[[str, int, int], None]
    ) -> tuple[Probed, ...]:
        """An answer to each question. `out`: where runs of the reference are copied, if they lie among others."""
        theirs = runs_of(asked.logs.expanduser(), self.reference, asked.without, out / "runs" / "reference")
        before = None if theirs is None else Read(load=self.sides[1].load, runs=theirs)
        return probe_log(Read(load=self.sides[0].load, runs=log.rollouts), before, self.channels, self.request,
                         decoders=self.decoders, seed=asked.seed, progress=progress)


def probe_sentences(probes: Sequence[Probed]) -> Iterator[str]:
    """What the probes tell, what the text does, and where their directions lie."""
    for one in probes:
        if one.measured is None:
            yield f"{_named(one)} cannot be probed: {(one.missing or '').rstrip('.')}."
            continue
        yield summary(one.about, one.measured)
        if one.measured.unread:
            yield f"That leaves out {plural(one.measured.unread, 'step')} that could not be read."
        if one.measured.moved is not None:
            yield f"Fitted to the reference's own runs, the same probe has {_value(one.measured.moved.auroc)} there."
        if one.decoders is not None:
            latent, cosine = one.decoders.nearest[0]
            yield (f"Its direction at {one.decoders.site} lies nearest to latent {latent} of the diff (cosine "
                   f"{plain(cosine, 2)}{_against_shuffles(one.decoders.p_value)}).")


def _named(one: Probed) -> str:
    return "A run's success" if one.about is None else f"A step that tries {printable(one.about)}"


def _against_shuffles(p_value: float | None) -> str:
    return "" if p_value is None else f"; p = {p_value:.2g} against probes of shuffled labels"


def _value(found: Estimate) -> str:
    return _told(found.estimate, found.low, found.high)


def _told(*values: Any, plus: bool = False) -> str:
    """An estimate with the ends of its interval."""
    estimate, low, high = (plain(value, 2, plus=plus and place == 0) for place, value in enumerate(values))
    return f"{estimate} ({low} to {high})"


def probe_tables(probes: Sequence[Probed]) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Of each question that was answered its title, and rows of a reading, its AUROC and the probe's lead over it."""
    for one in probes:
        if one.measured is not None:
            rows = []
            for name, *values in table(one.measured).rows:
                lead = "" if values[3] is None else _told(*values[3:], plus=True)
                rows.append((str(name), _told(*values[:3]), lead))
            yield f"{_named(one)}, announced before the action", rows


def probe_lines(probes: Sequence[Probed]) -> Iterator[str]:
    """The tables as text."""
    for title, rows in probe_tables(probes):
        width = max(len(title), *(len(name) for name, _, _ in rows)) + 2
        yield ""
        yield f"{title:<{width}}{'AUROC':<22}probe minus this"
        for name, told, lead in rows:
            yield f"{name:<{width}}{told:<22}{lead}".rstrip()


def probe_rows(probes: Sequence[Probed]) -> list[dict[str, Any]]:
    """Plain data for `grades.json`."""
    return [{"about": one.about, "missing": one.missing, **(_row(one.measured) if one.measured else {}),
             "decoders": None if one.decoders is None else {
                 "site": one.decoders.site, "p_value": one.decoders.p_value,
                 "nearest": [{"latent": latent, "cosine": cosine} for latent, cosine in one.decoders.nearest]}}
            for one in probes]


def _row(measured: Measured) -> dict[str, Any]:
    found, dealt = measured.found, sorted(measured.found.shuffled)
    return {
        "auroc": _interval(found.auroc), "rows": found.rows, "positives": found.positives, "tasks": found.tasks,
        "unread_steps": measured.unread, "difference_of_means": _interval(measured.plain.auroc),
        "by_site": {site: _interval(one) for site, one in found.by_site.items()},
        "text": {name: {"auroc": _interval(one.auroc), "probe_minus_this": _interval(one.advantage)}
                 for name, one in found.baselines.items()},
        "shuffled_labels": {"times": len(dealt), "mean": sum(dealt) / len(dealt), "least": dealt[0], "most": dealt[-1],
                            "p_value": found.p_value} if dealt else None,
        "before_to_after": None if measured.moved is None else _interval(measured.moved.auroc),
        "before_to_after_missing": measured.unmoved,
    }


def _interval(one: Estimate) -> dict[str, float]:
    return {"estimate": one.estimate, "low": one.low, "high": one.high, "level": one.level}
