"""Write the tables that the pages' commands name, so that each can be tried as it is printed.

    python examples/tables.py

writes them into the current folder (or the folder named after it), in a second; a file that is
there already is left alone. All people and places are made up, drawn with a fixed seed:

checkins.parquet               who (user) was where (venue) and when (at); country
sales/2024-01.parquet, ...     customer, product, day, region, amount; one file a month
shop.csv, shop.parquet         user, item, at, town
shop.db                        the same as table "sales" of an SQLite database
ratings.csv                    the same rows with the user's rating (stars), price and paid_by
users.csv, items.csv           what is known of the shop's users (user) and items (item)
nodes.csv, edges.csv           accounts of three banks, some with a label, and payments among them
accounts.parquet, transfers.parquet    the same under other names
asked.csv                      pairs of an aircraft and a destination, for a run on flights
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd

from fedvine.core.rng import rng

START = pd.Timestamp("2024-01-01")


def visits(what: str, clients: list[str], rows: int = 3000, people: int = 150, places: int = 60
           ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """``(person, place, client, minute)`` of each row [rows], in order of time.

    A person has a home client and three favourite places there, visited seven times out of ten;
    one visit in ten is at another client. Places of a client are numbered round about.
    """
    draw = rng("tables", what)
    k = len(clients)
    person = draw.integers(0, people, rows)
    client = np.where(draw.random(rows) < 0.1, draw.integers(0, k, rows), person % k)
    favourite = (person * 7 + draw.integers(0, 3, rows) * 5) % (places // k)
    anywhere = (places // k * draw.random(rows) ** 2).astype(int)
    place = k * np.where(draw.random(rows) < 0.7, favourite, anywhere) + client
    minute = np.sort(draw.integers(0, 91 * 24 * 60, rows))
    return person, place, np.array(clients)[client], minute


def named(letter: str, number: np.ndarray) -> list[str]:
    """``u17`` for 17."""
    return [f"{letter}{n}" for n in number]


def accounts(count: int = 600, banks: tuple[str, ...] = ("north", "south", "west")
             ) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Nodes (id, age, income, bank, label, one label in five unknown) and payments between them.

    These have columns src, dst, amount and at; firms pay more, and charities at any time of day.
    """
    draw = rng("tables", "accounts")
    kinds = ["charity", "firm", "person", "shop"]
    kind, bank = draw.integers(0, 4, count), draw.integers(0, len(banks), count)
    label = pd.Series(np.array(kinds)[kind]).where(draw.random(count) < 0.8)
    nodes = pd.DataFrame({
        "id": named("n", np.arange(count)), "age": draw.normal(kind % 2, 0.7).round(2),
        "income": draw.normal(kind // 2, 0.7).round(2), "bank": np.array(banks)[bank],
        "label": label})
    ends = draw.integers(0, count, (2, 12 * count))
    like = (kind[ends[0]] == kind[ends[1]]) & (bank[ends[0]] == bank[ends[1]])
    ends = ends[:, like | (draw.random(12 * count) < 0.1)]
    payer = kind[ends[0]]
    amount = draw.lognormal(3 + 2 * (payer == 1), 1).round(2)
    hour = np.where(payer == 0, draw.uniform(0, 24, len(payer)), draw.uniform(8, 18, len(payer)))
    at = START + pd.to_timedelta(draw.integers(0, 30, len(payer)) * 24 + hour, "h").floor("min")
    return nodes, pd.DataFrame({"src": named("n", ends[0]), "dst": named("n", ends[1]),
                                "amount": amount, "at": at})


def tables() -> dict[str, pd.DataFrame]:
    """Every table by its file."""
    person, venue, country, minute = visits("checkins", ["chile", "ghana", "japan"])
    found = {"checkins.parquet": pd.DataFrame({
        "user": named("u", person), "venue": named("v", venue),
        "at": START + pd.to_timedelta(minute, "min"), "country": country})}

    person, product, region, minute = visits("sales", ["east", "north", "west"])
    day = START + pd.to_timedelta(minute // 1440, "D")
    amount = rng("tables", "amount").integers(-5, 100, len(day))        # below 0: returned
    sales = pd.DataFrame({"customer": named("c", person), "product": named("p", product),
                          "day": day, "region": region, "amount": amount})
    for month in (1, 2, 3):
        found[f"sales/2024-{month:02}.parquet"] = sales[day.month == month]

    person, item, town, minute = visits("shop", ["ayr", "bath", "cyd"])
    shop = pd.DataFrame({"user": named("u", person), "item": named("i", item),
                         "at": START + pd.to_timedelta(minute, "min"), "town": town})
    found |= {"shop.csv": shop, "shop.parquet": shop, "shop.db": shop}
    draw = rng("tables", "ratings")
    found["ratings.csv"] = shop.assign(
        stars=np.clip(3 - (person + item) % 5 + draw.integers(-1, 2, len(shop)), -2, 5),
        price=(item * 37 % 90 + 9.5), paid_by=np.array(["card", "cash"])[person % 2])
    user, item = np.unique(person), np.unique(item)
    found |= {"users.csv": pd.DataFrame({"user": named("u", user), "favourite": user * 7 % 20,
                                         "town": np.array(["ayr", "bath", "cyd"])[user % 3]}),
              "items.csv": pd.DataFrame({"item": named("i", item), "shelf": item // 3,
                                         "price": (item * 37 % 90 + 9.5)})}

    nodes, edges = accounts()
    found |= {"nodes.csv": nodes, "edges.csv": edges,
              "accounts.parquet": nodes.rename(columns={"id": "account", "label": "kind"}),
              "transfers.parquet": edges.rename(columns={"src": "payer", "dst": "payee"})}
    found["asked.csv"] = pd.DataFrame({"client": ["JFK", "JFK", "EWR"],
                                       "user": ["N14228", "N14228", "N14228"],
                                       "item": ["MIA", "BOS", "IAH"]})
    return found


def write(folder: Path, say: Callable[[str], None] = print) -> None:
    """Write each table that is not in ``folder`` yet."""
    for name, table in tables().items():
        file = folder / name
        if file.exists():
            say(f"{file} is there already; left as it is.")
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.tmp")      # a file is there whole or not at all
        if file.suffix == ".csv":
            table.to_csv(part, index=False)
        elif file.suffix == ".db":
            with closing(sqlite3.connect(part)) as database:
                table.to_sql("sales", database, index=False)
        else:
            table.to_parquet(part, index=False)
        part.replace(file)
        say(f"{file}: {len(table):,} rows of {', '.join(table.columns)}")


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
