"""Citations among US patents: patent -> the patent it cites, with six classes.

Source: https://github.com/MGitHubL/Deep-Temporal-Graph-Clustering, folder ``data/patent``; M. Liu
et al., "Deep Temporal Graph Clustering", ICLR 2024, from B. Hall, A. Jaffe, M. Trajtenberg, "The
NBER Patent Citations Data File", NBER working paper 8498, 2001.

41,916 edges of 12,214 patents, of which 5,000 cite, each at one time, and 7,410 are cited. Times
are scaled to 0 to 1 and take 891 values, nine in ten of them above 0.87, so ten stages of about
4,200 edges are cut. Classes are called as in the file, 1 to 6: 3,347, 2,634, 3,796, 933, 769 and
735 patents; two thirds of the edges join equal ones. There are no features. A patent cites when
it is new, so past communities do not predict its edges: edges are assigned to three clients by the
hash of the citing patent.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found
from fedvine.datasets._streams import one_class, relation, rows, with_classes

SPLIT: dict = {"by": "hash", "k": 3}
STAGES: str | int = 4200

_FILES = ("patent.txt", "node2label.txt")
_COLUMNS = {"src": "BIGINT", "dst": "BIGINT", "time": "DOUBLE"}


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` (float64, 0 to 1), one kind of nodes.

    ``nodes`` has the class of each patent from its first edge on. ``folder`` holds ``patent.txt``
    and ``node2label.txt``, or both as ``.gz`` (by default ``$FEDVINE_DATA/temporal/patent``).
    Raises :class:`FedvineError` if one is not there or cannot be read.
    """
    places = folders(folder, "temporal/patent")
    edges, labels = (found(place / f"{name}{packed}" for place in places for packed in ("", ".gz"))
                     for name in _FILES)
    if edges is None or labels is None:
        missing = [name for name, file in zip(_FILES, (edges, labels), strict=True) if not file]
        raise FedvineError(
            f"{' and '.join(missing)} were not found in "
            f"{places[0] if places else 'FEDVINE_DATA, which is unset'}; get them from "
            "github.com/MGitHubL/Deep-Temporal-Graph-Clustering, folder data/patent, and name "
            "their folder.")
    return kept("patent", [edges, labels], 1, lambda store: _read(edges, labels, store))


def _read(edges: Path, labels: Path, store: Path) -> EventStream:
    class_of = one_class(labels, ((node, name) for node, name in rows(labels, 2, " ")))
    with tempfile.TemporaryDirectory() as work:
        stream = read(
            f"FROM {relation(edges, _COLUMNS, ' ', '')}",
            src="src", dst="dst", time="time", bipartite=False, store=Path(work) / "edges",
            name="patent")
        return with_classes(stream, class_of).write(store)
