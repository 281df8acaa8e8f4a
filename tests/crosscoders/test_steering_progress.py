"""Steering is never silent for long: whatever is played, read or loaded, the next piece of it
comes after news, by count and not by a clock.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crosscoders.dictionaries.saved import save_dictionary
from crosscoders.steering.experiment import SteeringExperiment, steer
from crosscoders.steering.experiment_file import SteeringConfig, read_experiment
from forensics.study import run_study
from forensics.subjects import HeldPolicy
from tests.crosscoders.steering_world import SHARED, SITE, known_dictionary, world

NEWS = "news"
PAIR = 2  # both models are read between two pieces of news
EXPERIMENT = """
dictionary = "dictionary"
measure = "kind:history"
strengths = 1
tasks = 4
choosing = 12
samples = 1
controls = 2
features = "top:1"
[side_effects]
texts = "harmless.txt"
"""


class Heard:
    """Pieces of work and pieces of news in their order; `shares`: of each bar, while it is open."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.shares: dict[str, float] = {}
        self.names: set[str] = set()

    def __call__(self, what: str, done: int, of: int) -> None:
        name = what.partition(",")[0]
        self.events.append(NEWS)
        self.names.add(name)
        assert done / of >= self.shares.get(name, 0.0), f"{what} goes backwards"
        self.shares[name] = done / of
        if done >= of:
            del self.shares[name]

    def works(self, monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
        """Note every call of a method, or every item of what it yields."""
        plain: Callable[..., Any] = getattr(owner, method)

        def each(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                self.events.append(method)
                yield item

        def noted(*given: Any, **how: Any) -> Any:
            found = plain(*given, **how)
            if isinstance(found, Iterator):
                return each(found)
            self.events.append(method)
            return found

        monkeypatch.setattr(owner, method, noted)

    @property
    def longest_silence(self) -> int:
        """Pieces of work with no news in between."""
        longest = since = 0
        for event in self.events:
            since = 0 if event == NEWS else since + 1
            longest = max(longest, since)
        return longest


@pytest.mark.parametrize("how", ["options", "an experiment"])
def test_work_is_told_piece_by_piece(how, tmp_path, monkeypatch) -> None:
    pair, heard = world(), Heard()
    dictionary = save_dictionary(known_dictionary(pair), tmp_path / "dictionary", site=SITE)
    for owner, method in (
        (type(pair.after), "play"),
        (type(pair.after), "activations"),
        (HeldPolicy, "open"),
    ):
        heard.works(monkeypatch, owner, method)
    given = {"before": pair.before, "after": pair.after, "environment": pair.environment}
    if how == "options":
        small = {"tasks": 4, "choosing": 12, "samples": 1, "features": f"{SHARED}"}
        config = SteeringConfig(controls=2, feature_controls=1, strengths=(1.0,))
        given |= {"dictionary": dictionary, "config": config} | small
        steer(**given, out=tmp_path / "out", progress=heard)
    else:
        (tmp_path / "harmless.txt").write_text("fail pear : 3 -> 12\n\nadd 1 fig : x * 2 - 6")
        (tmp_path / "steering.toml").write_text(EXPERIMENT)
        study = SteeringExperiment(experiment=read_experiment(tmp_path / "steering.toml"), **given)
        run_study(study, tmp_path / "out", progress=heard)
        assert {"reading latents", "finding what differs most"} <= heard.names
    assert {"loading both models", "playing", "reading both models", "steering"} <= heard.names
    assert heard.events.count("play") > 50 and heard.events.count("activations") >= 24
    assert heard.longest_silence <= PAIR
    assert not heard.shares, "no bar is left open"
