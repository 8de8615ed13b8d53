"""Face-to-face contacts in a primary school, a high school or a hospital ward, with classes.

Source: SocioPatterns, http://www.sociopatterns.org (its data are for non-commercial use), in the
files of the Python package ``tnetwork`` 1.2 (folder ``tnetwork/dyn_graph/toy_data``).

An edge is 20 seconds that two people spent face to face, at seconds since 1970 as in the file. It
has no direction; the file's first person is ``src``.

- ``primary_school``: 125,773 contacts of 242 people in 2 days; the 10 school classes, and
  teachers. J. Stehle et al., PLoS ONE 6(8):e23176, 2011.
- ``thiers``: 45,047 contacts of 180 pupils of a French high school in 9 days of 2012; 5 school
  classes. J. Fournet, A. Barrat, PLoS ONE 9(9):e107878, 2014.
- ``hospital``: 32,424 contacts of 75 people in 4 days; patients (PAT), nurses (NUR), doctors
  (MED) and administration (ADM). P. Vanhems et al., PLoS ONE 8(9):e73970, 2013.

There are no features. Stages of 5,000 contacts, 25, 9 or 6 of them, pass over the nights;
communities of people are assigned to three clients.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedvine.core.errors import FedvineError, near
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found
from fedvine.datasets._streams import one_class, relation, rows, with_classes

SPLIT: dict = {"by": "louvain", "k": 3}
STAGES: str | int = 5000
DATES = True
NETWORKS = {"primary_school": "Primary_School.csv", "thiers": "thiers_2012.csv",
            "hospital": "Contacts_Hospital.csv"}

_COLUMNS = {"time": "BIGINT", "i": "BIGINT", "j": "BIGINT", "class_i": "VARCHAR",
            "class_j": "VARCHAR"}


def load(folder: Path | None = None, network: str = "primary_school") -> EventStream:
    """Return the contacts of a network: ``src``, ``dst``, ``t`` (int64, seconds), ``nodes``.

    All nodes are of one kind; ``nodes`` has the class of each person from the first contact on.
    ``network`` is ``primary_school``, ``thiers`` or ``hospital``. ``folder`` holds
    ``Primary_School.csv``, ``thiers_2012.csv`` or ``Contacts_Hospital.csv``, or one of them as
    ``.gz`` (by default ``$FEDVINE_DATA/temporal/sociopatterns``). Raises :class:`FedvineError` for
    another network, and if its file is not there or cannot be read.
    """
    if network not in NETWORKS:
        raise FedvineError(f'SocioPatterns has no network "{network}"{near(network, NETWORKS)}; '
                           f"choose {', '.join(NETWORKS)}.")
    places, name = folders(folder, "temporal/sociopatterns"), NETWORKS[network]
    file = found(place / f"{name}{packed}" for place in places for packed in ("", ".gz"))
    if file is None:
        raise FedvineError(
            f"{name} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}; "
            "get it from the package tnetwork 1.2, folder tnetwork/dyn_graph/toy_data, and name "
            "its folder.")
    return kept(f"sociopatterns-{network}", [file], 2, lambda store: _read(file, network, store))


def _read(file: Path, network: str, store: Path) -> EventStream:
    contacts = relation(file, _COLUMNS, "\t", "")
    with tempfile.TemporaryDirectory() as work:
        stream = read(
            f"FROM {contacts}", src="i", dst="j", time="time", bipartite=False,
            store=Path(work) / "edges", name=f"sociopatterns-{network}")
        pairs = (pair for _, i, j, class_i, class_j in rows(file, 5, "\t")
                 for pair in ((i, class_i), (j, class_j)))
        stream = stream.with_direction(False)
        return with_classes(stream, one_class(file, pairs)).write(store)
