"""Foursquare check-ins of four cities for 22 months: user -> venue, client = country.

Source: D. Yang, B. Qu, J. Yang, P. Cudre-Mauroux, "Revisiting User Mobility and Social
Relationships in LBSNs: A Hypergraph Embedding Approach", WWW 2019 ("LBSN2Vec"), its data of New
York (US), Sao Paulo (BR), Jakarta (ID) and Kuala Lumpur (MY), one city of each country.

1,260,764 check-ins of 20,159 users at 29,557 venues, 2012-04-03 18:00 to 2014-01-22 16:00 UTC:
MY 526,405 of 6,378 users, ID 378,559 of 6,206, BR 249,839 of 3,842, US 105,961 of 3,785. Users
have one number in all four cities, and 51 of them check in in more than one; venues are of one
city. 658.9 days make 22 stages of 30 days.

Limits: the published files keep only the local hour of the week of a check-in, in order
of time, so that the times are derived from them. The hours were unwrapped, and three weeks that
the crawl lost in August to October 2012 were put back from the outages of the TIST2015 check-ins
(:mod:`fedvine.datasets.foursquare`), which have exact times. Times are whole hours: 9,161 rows
repeat user, venue and hour of another and are kept, and within an hour rows are in order of user
and venue, whatever came first. 10,260 rows near outages (``approx_week`` in the file) may be off by
one or two weeks. The choice of users and venues is not described: no venue has fewer than 10
check-ins, so these are not all of a city's. Categories of venues and the users' friends are not
read.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found

SPLIT: dict = {"by": "country"}
STAGES: str | int = "30d"
DATES = True

_FILE = "foursquare_www2019_4cities.parquet"


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and the code ``country``.

    ``t`` is int64, seconds since 1970 in UTC, whole hours; a country is US, BR, ID or MY.
    ``folder`` holds ``foursquare_www2019_4cities.parquet`` (user_id, venue_id, timestamp, country;
    by default ``$FEDVINE_DATA/temporal/checkins``). Rows of one hour are in the file's order.
    Raises :class:`FedvineError` if it is not there or cannot be read.
    """
    places = folders(folder, "temporal/checkins")
    file = found(place / _FILE for place in places)
    if file is None:
        raise FedvineError(
            f"{_FILE} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}; "
            "make it from the dataset_connected files of LBSN2Vec "
            "(github.com/eXascaleInfolab/LBSN2Vec) and name its folder.")
    return kept("four-cities", [file], 1, lambda store: read(
        file, src="user_id", dst="venue_id", time="timestamp", client="country", store=store,
        name="four-cities"))
