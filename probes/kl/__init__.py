"""Where RL spent its KL: the additive split over step kinds, channels, token classes and turns.

    plan = plan_split(runs, policy)                                    # `runs` can be iterated again and again
    book = Book(plan=plan)
    for scored in score_log(policy, reference, runs, readouts=(plan.readout,)):
        book.add(scored)
    split = split_of(book, channels)                                   # `KlSplit`
    write_split(folder, split)                                         # `kl_split.json`

Where the scorer knows no whole distributions (a server) leave the readout out: the plain estimator is told.
"""

from probes.kl.book import Book, Plan, plan_split
from probes.kl.picture import figures, table
from probes.kl.split import KlSplit, Part, split_of
from probes.kl.writing import split_content, write_split

__all__ = [
    "Book", "KlSplit", "Part", "Plan", "figures", "plan_split", "split_content", "split_of", "table", "write_split",
]
