"""Instruments of the score, signal and behaviour sections, and what other rooms take from them."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.layers import decomposition as decomposition, text_words as text_words
    from forensics.layers.actions import command_of as command_of, kinds_of as kinds_of
    from forensics.layers.decomposition import (
        AFTER as AFTER,
        BEFORE as BEFORE,
        COLUMNS as COLUMNS,
        GENUINE_BAR as GENUINE_BAR,
        OPEN as OPEN,
        PHANTOM_BAR as PHANTOM_BAR,
        Panel as Panel,
        Runs as Runs,
        Weights as Weights,
        World as World,
        add as add,
        gain as gain,
        paired as paired,
        read_runs as read_runs,
        runs_from as runs_from,
    )
    from forensics.layers.evidence_chain import (
        ChainRule as ChainRule,
        Use as Use,
        digest as digest,
        keep_donor as keep_donor,
        use_of as use_of,
    )
    from forensics.layers.one_line_rules import (
        EXTREME as EXTREME,
        PLACE as PLACE,
        RULE as RULE,
        Examined as Examined,
        Rule as Rule,
        examine as examine,
        plain as plain,
        rows_of as rows_of,
        shuffled as shuffled,
        units_of as units_of,
    )
    from forensics.layers.score import channel_names as channel_names
    from forensics.layers.text_words import (
        Gram as Gram,
        grams as grams,
        placed_words as placed_words,
        words as words,
    )

__getattr__, __dir__ = lazy_names(__name__)
