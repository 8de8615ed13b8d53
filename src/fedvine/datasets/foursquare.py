"""Check-ins of Foursquare: user -> venue, client = country."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import duckdb

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.parts import literal
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found

COUNTRIES = ("US", "BR", "ID", "TR", "JP")

_PARQUET, _CITIES = "foursquare_tist2015_subset.parquet", "foursquare_www2019_4cities.parquet"


class Foursquare:
    """Foursquare check-ins of the world: user -> venue, client = country.

    Source: D. Yang, D. Zhang, B. Qu, "Participatory Cultural Mapping Based on Collective Behavior
    Data in Location-Based Social Networks", ACM TIST 7(3), 2015-2016 ("TIST2015"). Two public forms
    of it are read, and give equal streams for equal check-ins:

    - ``data_US.txt`` (or ``.txt.gz``), one file a country: user, venue, ``Tue Apr 03 18:00:06 +0000
      2012``, offset to local time in minutes; tab separated. FedGraph (Yao et al., 2024) uses these
      files, for the countries US, BR, ID, TR and JP.
    - ``foursquare_tist2015_subset.parquet`` (user_id, venue_id, timestamp, country): the part of
      TIST2015 with which HMT-GRN (Lim et al., SIGIR 2022) tests, and only the later third of it.
      For the five countries it holds 40,670 check-ins, 2012-04-03 to 2013-09-16: TR 16,106, US
      11,433, JP 4,953, ID 4,096, BR 4,082; 11,597 users, of whom 138 check in in more than one of
      them.

    The part stands in for FedGraph's data in trials, but its scores are not comparable: its stream
    is called ``foursquare-tist2015-part``, as is that of text files made from it, in which every
    offset is 0. 531 days make 11 stages of 50 days; the fourth and fifth fall into a gap of the
    crawl and have only 791 and 379 check-ins.
    """

    name: ClassVar[str] = "foursquare"
    SPLIT: ClassVar[dict[str, Any]] = {"by": "country"}
    STAGES: ClassVar[str] = "50d"
    DATES: ClassVar[bool] = True

    @classmethod
    def load(cls, folder: Path | None = None, countries: Sequence[str] = COUNTRIES) -> EventStream:
        """Return the check-ins of ``countries``: ``src``, ``dst``, ``t`` and the code ``country``.

        ``countries`` are codes of two letters. ``folder`` holds ``data_XX.txt`` or
        ``data_XX.txt.gz`` for all of them, or the Parquet file (by default
        ``$FEDVINE_DATA/temporal/checkins`` and its ``foursquare_tist2015_by_country``). Rows of
        equal times are sorted by country, user and venue. Raises :class:`FedvineError` if neither
        is there, or a country does not have check-ins.
        """
        for country in countries:
            if not (len(country) == 2 and country.isascii() and country.isalpha()):
                raise FedvineError(f'"{country}" is no country code of two letters, such as US.')
        countries = tuple(dict.fromkeys(country.upper() for country in countries))
        places = folders(folder, "temporal/checkins")
        places += [place / "foursquare_tist2015_by_country" for place in places]
        texts = [found(place / f"data_{country}.txt{packed}" for place in places
                       for packed in ("", ".gz")) for country in countries]
        files = [file for file in texts if file is not None]
        if files and len(files) == len(countries):
            query = " UNION ALL ".join(map(_text, files, countries))
        elif parquet := found(place / _PARQUET for place in places):
            files, query = [parquet], _parquet(parquet, countries)
        else:
            missing = [f"data_{c}.txt" for c, file in zip(countries, texts, strict=True)
                       if not file]
            raise FedvineError(
                f"Foursquare's {', '.join(missing) or 'files'} and {_PARQUET} were not found in "
                f"{places[0] if places else 'FEDVINE_DATA, which is unset'}; get the check-in "
                "files that FedGraph's link prediction links to (github.com/FedGraph/fedgraph) and "
                "name their folder.")
        stream = kept("foursquare", files, countries,
                      lambda store: _read(files, query, countries, store))
        if absent := sorted(set(countries) - set(stream.categories["country"])):
            raise FedvineError(f"{files[0]} has no check-ins in {', '.join(absent)}.")
        return stream


def _text(file: Path, country: str) -> str:
    return (f"SELECT user_id, venue_id, strptime(moment, '%a %b %d %H:%M:%S %z %Y') AS moment, "
            f"'{country}' AS country FROM {_lines(file)}")


def _lines(file: Path) -> str:
    return (f"read_csv({literal(str(file))}, auto_detect = false, header = false, delim = '\t', "
            "quote = '', escape = '', columns = {'user_id': 'BIGINT', 'venue_id': 'VARCHAR', "
            f"'moment': 'VARCHAR', 'minutes': 'BIGINT'}}, "
            f"compression = '{'gzip' if file.suffix == '.gz' else 'none'}')")


def _parquet(file: Path, countries: Sequence[str]) -> str:
    wanted = ", ".join(map(literal, countries))
    return (f"SELECT user_id, venue_id, timestamp AS moment, country FROM {literal(str(file))} "
            f"WHERE country IN ({wanted})")


def _read(files: Sequence[Path], query: str, countries: Sequence[str], store: Path) -> EventStream:
    name = "foursquare-tist2015" + ("-part" if _is_part(files) else "")
    if set(countries) != set(COUNTRIES):
        name += "-" + "-".join(countries)
    return read(f"SELECT * FROM ({query}) ORDER BY moment, country, user_id, venue_id",
                src="user_id", dst="venue_id", time="moment", client="country", store=store,
                name=name)


def _is_part(files: Sequence[Path]) -> bool:
    """Return whether the files are the part alone; only full files have offsets to local time."""
    if files[0].suffix == ".parquet":
        return True
    with duckdb.connect() as connection:
        try:
            return not any(connection.execute(f"SELECT 1 FROM {_lines(file)} WHERE minutes <> 0 "
                                              "LIMIT 1").fetchone() for file in files)
        except duckdb.Error:        # read() says what is wrong with the file
            return True


class FourCities:
    """Foursquare check-ins of four cities for 22 months: user -> venue, client = country.

    Source: D. Yang, B. Qu, J. Yang, P. Cudre-Mauroux, "Revisiting User Mobility and Social
    Relationships in LBSNs: A Hypergraph Embedding Approach", WWW 2019 ("LBSN2Vec"), its data of New
    York (US), Sao Paulo (BR), Jakarta (ID) and Kuala Lumpur (MY), one city of each country.

    1,260,764 check-ins of 20,159 users at 29,557 venues, 2012-04-03 18:00 to 2014-01-22 16:00 UTC:
    MY 526,405 of 6,378 users, ID 378,559 of 6,206, BR 249,839 of 3,842, US 105,961 of 3,785. Users
    have one number in all four cities, and 51 of them check in in more than one; venues are of one
    city. 658.9 days make 22 stages of 30 days.

    Limits: the published files keep only the local hour of the week of a check-in, in order of
    time, so that the times are derived from them. The hours were unwrapped, and three weeks that
    the crawl lost in August to October 2012 were put back from the outages of the TIST2015
    check-ins (:class:`Foursquare`), which have exact times. Times are whole hours: 9,161 rows
    repeat user, venue and hour of another and are kept, and within an hour rows are in order of
    user and venue, whatever came first. 10,260 rows near outages (``approx_week`` in the file) may
    be off by one or two weeks. The choice of users and venues is not described: no venue has fewer
    than 10 check-ins, so these are not all of a city's. Categories of venues and the users' friends
    are not read.
    """

    name: ClassVar[str] = "four_cities"
    SPLIT: ClassVar[dict[str, Any]] = {"by": "country"}
    STAGES: ClassVar[str] = "30d"
    DATES: ClassVar[bool] = True

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and the code ``country``.

        ``t`` is int64, seconds since 1970 in UTC, whole hours; a country is US, BR, ID or MY.
        ``folder`` holds ``foursquare_www2019_4cities.parquet`` (user_id, venue_id, timestamp,
        country; by default ``$FEDVINE_DATA/temporal/checkins``). Rows of one hour are in the file's
        order. Raises :class:`FedvineError` if it is not there or cannot be read.
        """
        places = folders(folder, "temporal/checkins")
        file = found(place / _CITIES for place in places)
        if file is None:
            raise FedvineError(
                f"{_CITIES} was not found in "
                f"{places[0] if places else 'FEDVINE_DATA, which is unset'}; make it from the "
                "dataset_connected files of LBSN2Vec (github.com/eXascaleInfolab/LBSN2Vec) and "
                "name its folder.")
        return kept("four-cities", [file], 1, lambda store: read(
            file, src="user_id", dst="venue_id", time="timestamp", client="country", store=store,
            name="four-cities"))
