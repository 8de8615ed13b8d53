"""A fortnight of a generated shop in a database: each night's forecasts against the next day.

    scripts/bench fortnight [sqlite:FILE | postgres://USER@HOST:PORT/NAME]

Every night a day of sales comes into the table ``sales``, the run learns it by the clock and writes
the ten likeliest items of every customer, all by commands as a timer calls them. The table's times
are those of Berlin, and summer time ends meanwhile. One in a hundred rows comes a night late.
Besides, one night all products have other names, which the gate refuses, and the names are put
right; one night a learned row was corrected; then a customer wants to be erased; and one night is
taken back and learned again. It is an error if an exit code is another one than is expected, or the
customer's name is left in a file.

Printed are the night's exit codes and, of the customers who buy the next day, NDCG@10 and hit@10 of
the forecasts, of each customer's own most frequent items (then the shop's most popular ones), and
of those alone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet

from fedvine.core.rng import rng
from fedvine.datasets.generated import Shop

FIRST = datetime.datetime(2024, 9, 9)       # 27 October is the 49th day
DAYS, NIGHTS, LATE = 46, 14, 0.01
COLUMNS = ["--src", "customer", "--dst", "product", "--time", "at", "--client", "town"]
RENAMED, CORRECTED, ERASED, BACK = 3, 5, 7, 9       # nights, from 0


class Table:
    """The table ``sales`` of a database."""

    def __init__(self, address: str) -> None:
        self.address = address
        if address.startswith("sqlite:"):
            import sqlite3
            self.connection: Any = sqlite3.connect(address.removeprefix("sqlite:"))
            self.mark = "?"
        else:
            import psycopg
            self.connection, self.mark = psycopg.connect(address), "%s"
        self.do("DROP TABLE IF EXISTS sales")
        self.do("CREATE TABLE sales (customer TEXT, product TEXT, at TEXT, town TEXT)")

    def do(self, words: str, rows: list[tuple[Any, ...]] | None = None) -> None:
        """Carry out a statement, once or for many rows."""
        cursor = self.connection.cursor()
        cursor.executemany(words.replace("?", self.mark), rows) if rows else cursor.execute(words)
        self.connection.commit()

    def add(self, rows: list[tuple[str, ...]]) -> None:
        """Insert rows."""
        if rows:
            self.do("INSERT INTO sales VALUES (?, ?, ?, ?)", rows)


def main() -> None:
    """Live through the fortnight; raise :class:`SystemExit` where it goes another way."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        address = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:{place}/shop.db"
        days = _days()
        table, late, erased = Table(address), [], ""
        for rows in days[:DAYS]:
            table.add(rows)
        print(f"{'night':10} {'codes':14} {'NDCG@10':>8} {'frequency':>10} {'popular':>8} "
              f"{'hit@10':>8} {'frequency':>10} {'popular':>8}", flush=True)
        means = []
        for k in range(NIGHTS):
            day = DAYS + k
            if k:
                drawn = rng("late", k).random(len(days[day - 1])) < LATE
                table.add(late)
                late = [row for row, is_late in zip(days[day - 1], drawn, strict=True) if is_late]
                new = [row for row, is_late in zip(days[day - 1], drawn, strict=True)
                       if not is_late and row[0] != erased]
                table.add([(c, f"x{p}", *rest) for c, p, *rest in new] if k == RENAMED else new)
            codes = []
            if k == CORRECTED:
                row = days[DAYS - 20][0]
                table.do("UPDATE sales SET product = ? WHERE customer = ? AND product = ? AND "
                         "at = ? AND town = ?", [("corrected", *row)])
            if k == ERASED:
                erased = Counter(row[0] for row in days[day - 2]).most_common(1)[0][0]
                table.do("DELETE FROM sales WHERE customer = ?", [(erased,)])
                codes.append(_fedvine("erase", "run", "--user", erased, "--yes"))
                _gone(erased)
            codes.append(_night(address, day))
            if k == RENAMED:
                table.do("UPDATE sales SET product = SUBSTR(product, 2) WHERE product LIKE 'x%'")
                codes.append(_night(address, day))
            if k == CORRECTED:
                codes.append(_night(address, day, "--changed", "relearn"))
            if k == BACK:
                codes += [_fedvine("rollback", "run", "--nights", "1"), _night(address, day)]
            expected = {RENAMED: [3, 0], CORRECTED: [4, 0], ERASED: [0, 0], BACK: [0, 0, 0]}
            if codes != expected.get(k, [0]):
                raise SystemExit(f"night {k + 1}: exit codes {codes}")
            _fedvine("predict", "run", "--all", "--top", "10", "--out", "all.parquet")
            means.append(_scores(days[:day], days[day], erased))
            print(f"{FIRST + datetime.timedelta(day):%Y-%m-%d} {' '.join(map(str, codes)):14} "
                  + " ".join(f"{v:{w}.3f}" for v, w in zip(means[-1], (8, 10, 8) * 2,
                                                           strict=True)), flush=True)
        print(f"{'mean':25} " + " ".join(f"{v:{w}.3f}" for v, w in zip(
            np.mean(means, 0), (8, 10, 8) * 2, strict=True)))


def _days() -> list[list[tuple[str, ...]]]:
    """Return the sales of each day, without those that came back, as rows of texts."""
    shop = Shop.load(rows=120_000, days=DAYS + NIGHTS + 1, shops=3, customers=3_000, items=500)
    found: list[list[tuple[str, ...]]] = [[] for _ in range(DAYS + NIGHTS + 1)]
    towns = shop.categories["shop"]
    for i in range(len(shop)):
        if shop.deleted is None or not shop.deleted[i]:
            at = FIRST + datetime.timedelta(days=float(shop.t[i]))
            found[int(shop.t[i])].append((
                f"customer {shop.src_ids[int(shop.src[i])]}",
                f"product {shop.dst_ids[int(shop.dst[i])]}", f"{at:%Y-%m-%d %H:%M:%S}",
                str(towns[int(shop.codes["shop"][i])])))
    return found


def _fedvine(*words: str) -> int:
    """Carry out a command of fedvine; return its exit code."""
    return subprocess.run([sys.executable, "-m", "fedvine", *words], stdin=subprocess.DEVNULL,
                          capture_output=True, check=False).returncode


def _night(address: str, day: int, *more: str) -> int:
    """Learn what has ended by two in the morning of a day; return the exit code."""
    return _fedvine("run", "fedlink_plus", "--data", "SELECT * FROM sales", "--database", address,
                    *COLUMNS, "--stages", "1d", "--origin", "00:00", "--timezone",
                    "Europe/Berlin", "--open", "--stop-on", "all", "--out", "run", "--as-of",
                    f"{FIRST + datetime.timedelta(days=day, hours=2):%Y-%m-%dT%H:%M}", *more)


def _gone(name: str) -> None:
    """Raise :class:`SystemExit` where a name is left in a file of the run or of its forecasts."""
    for path in [*Path("run").rglob("*"), Path("all.parquet")]:
        if path.is_file() and name.encode() + b'"' in path.read_bytes().replace(b"\0", b'"'):
            raise SystemExit(f"{name} is still in {path}")
    if Path("all.parquet").exists():
        raise SystemExit("the forecasts of the erased customer are still there")


def _scores(past: list[list[tuple[str, ...]]], today: list[tuple[str, ...]], erased: str
            ) -> list[float]:
    """Return NDCG@10, then hit@10, of the forecasts, of frequency and of popularity."""
    bought: dict[tuple[str, str], set[str]] = {}
    for customer, product, _, town in today:
        bought.setdefault((town, customer), set()).add(product)
    own: dict[tuple[str, str], Counter[str]] = {}
    popular: dict[str, Counter[str]] = {}
    for rows in past:
        for customer, product, _, town in rows:
            own.setdefault((town, customer), Counter())[product] += 1
            popular.setdefault(town, Counter())[product] += 1
    top = {town: [p for p, _ in counts.most_common(30)] for town, counts in popular.items()}
    said: dict[tuple[str, str], list[str]] = {}
    columns = parquet.read_table("all.parquet").select(["client", "user", "item"]).to_pydict()
    for town, user, item in zip(*columns.values(), strict=True):
        said.setdefault((town, user), []).append(item)
    found = []
    for (town, customer), right in bought.items():
        if customer == erased or (town, customer) not in own:   # new here: nothing is to be told
            continue
        often = [p for p, _ in own[town, customer].most_common(10)]
        often += [p for p in top[town] if p not in often][:10 - len(often)]
        lists = said.get((town, customer), []), often, top[town][:10]
        found.append([*(_ndcg(one, right) for one in lists),
                      *(float(bool(set(one) & right)) for one in lists)])
    return np.mean(found, 0).tolist()


def _ndcg(items: list[str], right: set[str]) -> float:
    gains = [1 / np.log2(i + 2) for i, item in enumerate(items) if item in right]
    return float(sum(gains) / sum(1 / np.log2(i + 2) for i in range(min(len(right), 10))))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
