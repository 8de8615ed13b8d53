"""fedlink_plus beside its rivals: ``python -m benchmarks._forecasts_table FILE.md [--run]``.

Prints the README's table and writes the page with all columns, from kept cells of seeds 0 to 2 (as
``fedvine compare --seeds 3`` makes them); ``--run`` makes those that are missing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedvine.core.files import atomic
from fedvine.core.units import seconds, size
from fedvine.results.compare import compare, experiments
from fedvine.results.comparison import UNBEATEN, Comparison
from fedvine.results.entry import Entry
from fedvine.results.tables import EACH_SEED, Table

SEEDS = 3
METHODS = ("fedlink_plus", "fedlink", "stfl", "edgebank", "popularity", "recency")
DATA = {"flights": "", "wikipedia": ":capacity=3200:buffers=2",
        "foursquare": ":capacity=1600:buffers=2", "uci": "", "bitcoin_otc": ""}
NAMES = {"flights": "flights", "wikipedia": "Wikipedia", "foursquare": "Foursquare", "uci": "UCI",
         "bitcoin_otc": "Bitcoin-OTC"}
KEYS = {"auc_new": "AUC new", "mrr_new": "MRR new", "auc": "AUC all", "mrr": "MRR all"}


def found(data: str, run: bool) -> Comparison:
    """Return the comparison on a data set; FedLink and STFL with the buffers of its page."""
    words = [m + (DATA[data] if m in ("fedlink", "stfl") else "") for m in METHODS]
    return compare(experiments(words, {"data": {"source": data}}), SEEDS,
                   budget=None if run else 0.0, tell=lambda line: print(line, file=sys.stderr))


def moved(entry: Entry) -> float | None:
    """Return the bytes of a run in both directions, mean over seeds."""
    both = [entry.cost(key) for key in ("bytes_up", "bytes_down")]
    return None if None in both else sum(both)      # type: ignore[arg-type]


def text(value: float | None, shown) -> str:
    """Return a value as text; ``-`` for None."""
    return "-" if value is None else shown(value)


def short(entry: Entry) -> str:
    """Return AUC of new pairs, AUC and MRR of all pairs, mean over seeds."""
    return " / ".join(text(entry.estimate(key)[0], lambda v: f"{v:.3f}"[1:])
                      for key in ("auc_new", "auc", "mrr"))


def whole(name: str, made: Comparison) -> Table:
    """Return the table of a data set: scores of each seed, bytes and CPU seconds of a run."""
    return Table(f"{name}, test period, mean over clients",
                 ["method", *KEYS.values(), "moved", "CPU s"],
                 [[e.label, *(made.score(e, key) for key in KEYS), text(moved(e), size),
                   text(e.cost("seconds_cpu"), seconds)] for e in made.entries])


def main(file: Path, run: bool) -> None:
    """Write the page, and print the short table."""
    every = {data: found(data, run) for data in DATA}
    first = every["flights"].entries
    short_table = Table("AUC of new pairs / AUC / MRR of all pairs", [
        "method", *NAMES.values(), "moved, flights", "CPU s, flights"], [
            [method, *(short(made.entries[i]) for made in every.values()),
             text(moved(first[i]), size), text(first[i].cost("seconds_cpu"), seconds)]
            for i, method in enumerate(METHODS)])
    print(short_table.markdown())
    notes = [every["flights"].task.questions(), EACH_SEED, UNBEATEN,
             "FedLink and STFL have their defaults on flights, UCI and Bitcoin-OTC; on Wikipedia "
             "and Foursquare buffers that hold at most 20 % of the largest client's history "
             "(`capacity=3200`, `capacity=1600`, `buffers=2`). UCI and Bitcoin-OTC are cut into "
             "five clients by Louvain. CPU seconds were measured while other work ran.",
             *(f"Not run: {cell}." for made in every.values() for cell in made.missing)]
    with atomic(file, "w") as handle:
        handle.write("\n\n".join([*(whole(NAMES[d], made).markdown() for d, made in every.items()),
                                  *notes]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--run" in sys.argv)
