"""Instruments of the behaviour layer."""

from typing import TYPE_CHECKING

from forensics.lazy import lazy_names

if TYPE_CHECKING:
    from forensics.layers.backtest import (
        BacktestConfig as BacktestConfig,
    )
    from forensics.layers.backtest import (
        CachedGroup as CachedGroup,
    )
    from forensics.layers.backtest import (
        cached_groups as cached_groups,
    )
    from forensics.layers.backtest import (
        deviation_within as deviation_within,
    )
    from forensics.layers.backtest import (
        outcome_correlation as outcome_correlation,
    )
    from forensics.layers.backtest import (
        revived_share as revived_share,
    )
    from forensics.layers.backtest import (
        tie_breaker as tie_breaker,
    )
    from forensics.layers.evidence_chain import (
        attempt_steps as attempt_steps,
    )
    from forensics.layers.evidence_chain import (
        showing_steps as showing_steps,
    )
    from forensics.layers.signal_alerts import (
        LINES as LINES,
    )
    from forensics.layers.signal_alerts import (
        AlertLine as AlertLine,
    )
    from forensics.layers.signal_alerts import (
        parse_line as parse_line,
    )
    from forensics.layers.train_columns import StepNumbers as StepNumbers
    from forensics.layers.train_columns import read_step as read_step

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AlertLine": "signal_alerts",
        "BacktestConfig": "backtest",
        "CachedGroup": "backtest",
        "LINES": "signal_alerts",
        "StepNumbers": "train_columns",
        "attempt_steps": "evidence_chain",
        "cached_groups": "backtest",
        "deviation_within": "backtest",
        "outcome_correlation": "backtest",
        "parse_line": "signal_alerts",
        "read_step": "train_columns",
        "revived_share": "backtest",
        "showing_steps": "evidence_chain",
        "tie_breaker": "backtest",
    },
)
