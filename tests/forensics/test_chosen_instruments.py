"""Which instruments measure: all, those that are named, all but some, or one's own."""

from dataclasses import replace

import pytest

from forensics.errors import UserError
from forensics.instruments import Instrument, chosen_instruments, installed_instruments

ALL = [tool.name for tool in installed_instruments()]
SCORE = next(tool for tool in installed_instruments() if tool.name == "score")


def names(*chosen: str | Instrument) -> list[str]:
    return [tool.name for tool in chosen_instruments(chosen)]


def test_nothing_chosen_takes_every_installed_one_in_the_order_of_names() -> None:
    assert names() == ALL == sorted(ALL)
    assert [tool.name for tool in chosen_instruments(None)] == ALL


def test_names_take_these_only_and_a_minus_leaves_one_out() -> None:
    assert names("score", "behaviour") == ["behaviour", "score"]
    assert names("-kl") == [name for name in ALL if name != "kl"]
    assert names("score", "kl", "-kl") == ["score"]


def test_an_instrument_of_ones_own_is_measured_with_too() -> None:
    mine = replace(SCORE, name="mine")
    assert chosen_instruments([mine]) == (mine,)
    assert names(mine, "behaviour") == ["behaviour", "mine"]


def test_none_takes_the_place_of_an_installed_one() -> None:
    """Its settings could loosen what a label rests on."""
    with pytest.raises(UserError, match=r"score is installed.*give yours another name"):
        chosen_instruments([SCORE.configured(level=0.5)])


@pytest.mark.parametrize(
    "chosen,says", [(["nix"], "known: ablation"), (["-nix"], "-nix"), (["score", "-score"], "left")]
)
def test_what_is_not_there_or_leaves_nothing_is_refused(chosen: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says):
        chosen_instruments(chosen)
