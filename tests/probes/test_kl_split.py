"""The split against what can be worked out by hand or written out in full."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forensics.errors import MissingInput
from forensics.protocols import Channel
from probes.kl.kl_split import CONDITIONAL, NO_CHANNEL, PLAIN, KlSplit, KlTally, split_of
from tests.probes.kl_world import HISTORY, Table, everything, plan_of, run, scored

NOTES = Channel(name="notes", family="disclosure", attempts=("open-notes",), description="")
PAST = Channel(name="past", family="disclosure", attempts=("history",), description="")
AFTER, BEFORE = Table(3), Table(4)


def tallied(actions: list, after: Table = AFTER, before: Table = BEFORE, tasks: int = 4) -> KlTally:
    runs = [run(one, f"task-{number % tasks}", str(number)) for number, one in enumerate(actions)]
    plan = plan_of(runs, after)
    tally = KlTally(plan=plan)
    for one in scored(runs, after, before, plan):
        tally.add(one)
    return tally


def single_runs() -> tuple[list[tuple], list[float], list[dict[str, np.ndarray]], KlTally]:
    """Every run with its probability, its sums and the tally of all, a task each."""
    tally = tallied(everything(), tasks=1000)
    names = [f"task-{number}" for number in range(len(everything()))]
    return (
        everything(),
        [AFTER.probability(one) for one in everything()],
        [tally.tasks[name] for name in names],
        tally,
    )


AXES = ("choice", "content", "turn", "token class")


@pytest.mark.parametrize("axis", AXES)
def test_both_estimators_have_one_expectation_class_by_class(axis: str) -> None:
    _, chances, every, _ = single_runs()
    expected = sum(chance * sums[axis] for chance, sums in zip(chances, every, strict=True))
    np.testing.assert_allclose(expected[PLAIN], expected[CONDITIONAL], atol=1e-6)
    assert np.abs(expected).max() > 0.05


@pytest.mark.parametrize("axis", AXES)
def test_they_agree_on_samples_within_their_standard_errors(axis: str) -> None:
    _, chances, every, _ = single_runs()
    values = np.stack([sums[axis][PLAIN] - sums[axis][CONDITIONAL] for sums in every])
    drawn = values[np.random.default_rng(5).choice(len(values), 4000, p=chances)]
    error = drawn.std(0, ddof=1) / 4000**0.5
    assert (np.abs(drawn.mean(0)) <= 4 * error + 1e-6).all()


def test_choosing_the_history_is_counted_as_the_formula_says() -> None:
    actions, chances, every, tally = single_runs()
    kind = tally.plan.lexicon.kinds.index("history")
    first = {one[0] for one in actions}
    ours = AFTER.spread((), ())[HISTORY], BEFORE.spread((), ())[HISTORY]
    expected = ours[0] * np.log(ours[0] / ours[1])
    for action in first:  # the second action's choice, behind each first one
        reach = sum(
            chance for one, chance in zip(actions, chances, strict=True) if one[0] == action
        )
        p, q = AFTER.spread((action,), ())[HISTORY], BEFORE.spread((action,), ())[HISTORY]
        expected += reach * p * np.log(p / q)
    got = sum(
        chance * sums["choice"][CONDITIONAL, kind]
        for chance, sums in zip(chances, every, strict=True)
    )
    assert got == pytest.approx(expected, abs=1e-6)
    assert (
        sum(abs(sums["content"][:, kind]).max() for sums in every) < 1e-9
    )  # its line end is certain


@given(
    st.lists(st.sampled_from(everything()), min_size=6, max_size=20),
    st.integers(0, 5),
    st.integers(6, 9),
)
def test_every_axis_adds_up_to_the_total(actions: list, after: int, before: int) -> None:
    split = split_of(tallied(actions, Table(after), Table(before)), (NOTES, PAST))
    for parts in (split.by_kind, split.by_channel, split.by_turn, split.by_token_class):
        assert sum(part.nats for part in parts.values()) == pytest.approx(
            split.total.estimate, abs=1e-5
        )
        assert sum(part.plain or 0 for part in parts.values()) == pytest.approx(
            split.plain, abs=1e-5
        )
        if split.undefined is None:
            assert sum(part.share.estimate for part in parts.values()) == pytest.approx(1, abs=1e-5)
    assert split.choice.nats + split.content.nats == pytest.approx(split.total.estimate, abs=1e-5)
    for part in split.by_kind.values():
        assert (part.choice or 0) + (part.content or 0) == pytest.approx(part.nats, abs=1e-9)


class Coin(Table):
    """One action only: the history with probability `seed / 10`, else `open 1`."""

    def spread(self, done, begun):
        found = np.zeros(5)
        if begun == ():
            found[[0, 1]] = self.seed / 10, 1 - self.seed / 10
        else:
            found[{(0,): 4, (1,): 2, (1, 2): 4}[begun]] = 1
        return found


def coins(after: int, before: int, heads: int) -> KlSplit:
    history, other = (0, 4), (1, 2, 4)
    actions = [(history,)] * heads + [(other,)] * (10 - heads)
    return split_of(tallied(actions, Coin(after), Coin(before), tasks=5), (PAST,))


def test_a_pair_worked_out_by_hand_and_its_mirror() -> None:
    """After reads the history with .8, before with .5.

    KL(after || before) = .8 ln(.8/.5) + .2 ln(.2/.5) = .37600 - .18326 = .19274
    nats, of which 1.951 times the whole on choosing the history and -.951 on
    choosing not to. The other way round .5 ln(.5/.8) + .5 ln(.5/.2) = -.23500 +
    .45815 = .22314: another number, since a KL has a direction.
    """
    there, back = coins(8, 5, heads=8), coins(5, 8, heads=5)
    assert there.total.estimate == pytest.approx(
        0.19274, abs=1e-5
    ) and back.total.estimate == pytest.approx(0.22314, abs=1e-5)
    assert there.by_kind["history"].share.estimate == pytest.approx(1.951, abs=1e-3)
    assert there.by_kind["open-file"].share.estimate == pytest.approx(-0.951, abs=1e-3)
    assert back.by_kind["history"].nats == pytest.approx(-0.235, abs=1e-4)
    assert there.by_kind["history"].content == 0 and there.content.nats == pytest.approx(
        0, abs=1e-9
    )
    assert there.plain == pytest.approx(
        0.19274, abs=1e-5
    )  # eight of ten runs: the sample is the expectation
    assert there.by_channel["past"].nats == there.by_kind["history"].nats


def test_identical_policies_have_no_kl_and_no_shares() -> None:
    split = split_of(tallied(everything(), AFTER, AFTER), (NOTES,))
    assert split.total.estimate == 0 and split.undefined and "hardly differ" in split.undefined
    for part in (*split.by_kind.values(), *split.by_channel.values()):
        assert part.nats == 0 and part.share is None


def test_a_channel_has_the_steps_that_try_it() -> None:
    split = split_of(tallied(everything()), (NOTES, PAST))
    assert split.by_channel["notes"] == split.by_kind["open-notes"]
    assert split.by_channel[NO_CHANNEL].nats == pytest.approx(split.by_kind["open-file"].nats)
    assert split_of(tallied(everything())).by_channel == {}


def test_one_task_gives_no_interval() -> None:
    with pytest.raises(MissingInput, match="1 task"):
        split_of(tallied(everything(), tasks=1))


def test_unread_tokens_are_left_out_and_counted() -> None:
    runs = [run(one, f"task-{number}", str(number)) for number, one in enumerate(everything())]
    plan = plan_of(runs, AFTER)
    whole, cut = KlTally(plan=plan), KlTally(plan=plan)
    for one in scored(runs, AFTER, BEFORE, plan):
        first = one.step == one.step[0]
        columns = {name: np.where(first, np.nan, column) for name, column in one.columns.items()}
        whole.add(one)
        cut.add(
            type(one)(
                trajectory=one.trajectory,
                step=one.step,
                place=one.place,
                token=one.token,
                columns=columns,
                unread=frozenset({int(one.step[0])}),
            )
        )
    less, full = split_of(cut), split_of(whole)
    assert less.unread == 25 and list(less.by_turn) == ["1"]
    assert less.total.estimate == pytest.approx(full.by_turn["1"].nats)
