"""Purchases from a British online shop: customer -> item, client = country.

Source: D. Chen, "Online Retail", UCI Machine Learning Repository, 2015, DOI 10.24432/C5BW33
(CC BY 4.0): all invoices from 2010-12-01 to 2011-12-09.

Of its 541,909 rows those 397,924 remain that have a customer and a quantity above 0, which returns
and cancellations do not have. They are of 4,339 customers, 3,665 items and 37 countries; nine in
ten of the customers are in the United Kingdom. An edge weighs its quantity. 374 days make 13 stages
of 28 days.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.parts import literal
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found

SPLIT: dict[str, Any] = {"by": "country"}
STAGES = "28d"
DATES = True

_FILE = "online_retail.parquet"


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: ``src``, ``dst``, ``t``, the code ``country`` and the weight.

    ``folder`` holds ``online_retail.parquet``, with the columns invoice, customer, item, at,
    country, quantity and price (by default ``$FEDVINE_DATA/temporal/retail``). Rows of equal times
    are sorted by invoice, item and quantity. Raises :class:`FedvineError` if it is not there.
    """
    places = folders(folder, "temporal/retail")
    file = found(place / _FILE for place in places)
    if file is None:
        raise FedvineError(
            f"{_FILE} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}; "
            "write the workbook Online Retail of archive.ics.uci.edu/dataset/352 as Parquet with "
            "the columns invoice, customer, item, at, country, quantity and price, and name its "
            "folder.")
    return kept("retail", [file], 1, lambda store: read(
        f"SELECT * FROM {literal(str(file))} WHERE customer IS NOT NULL AND quantity > 0 "
        'ORDER BY "at", invoice, item, quantity', src="customer", dst="item", time="at",
        client="country", weight="quantity", store=store, name="retail"))
