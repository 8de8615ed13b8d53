"""Fifteen years of posts on Reddit: user -> subreddit, with the subreddit that each user prefers.

Source: ``tgbn-reddit`` of the Temporal Graph Benchmark, https://tgb.complexdatalab.com, which
states its licence; S. Huang, F. Poursafaei, J. Danovitch, M. Fey, W. Hu, E. Rossi, J. Leskovec, M.
Bronstein, G. Rabusseau, R. Rabbany, "Temporal Graph Benchmark for Machine Learning on Temporal
Graphs", NeurIPS 2023.

As published: 27,174,118 posts of 2005 to 2019 among 11,766 users and subreddits, 698 of them
subreddits, at 21,889,537 different times. The weight is a post's score: votes for it less those
against. The file's number of words is not read.

The labels of the benchmark are the shares of a user's posts of the coming week by subreddit. The
class of a user here is the subreddit of the largest share, of equal ones the first in the alphabet,
from the time of the label on. TGB scores a ranking of all subreddits instead (NDCG@10), so scores
of classes cannot be compared with its leaderboard.

Stages are 90 days, some 60 of them. The data do not have clients: subreddits are assigned to five
in one pass over the edges, as a second copy of these would be large.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.data.io.cache import kept
from fedvine.data.io.store import sentence
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.datasets import _tgb, found

SPLIT: dict = {"by": "stream", "k": 5}
STAGES: str | int = "90d"
DATES = True

_COLUMNS = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR", "words": "VARCHAR",
            "score": "DOUBLE"}
_LABELS = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR", "share": "DOUBLE"}


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``, and ``nodes`` if there.

    ``t`` is int64, seconds since 1970; ``weight`` is float32. ``folder`` holds
    ``tgbn-reddit_edgelist.csv``, with a header and rows ``ts,src,subreddit,num_words,score``, and
    for classes of users ``tgbn-reddit_node_labels.csv``, with a header and rows
    ``ts,src,subreddit,weight``, both plain or gzip (by default
    ``$FEDVINE_DATA/temporal/tgbn-reddit``). Raises :class:`FedvineError` if the first is not there
    or one cannot be read; there is no download.
    """
    file = _tgb.edge_list("tgbn-reddit", ("",), folder)
    labels = found(file.with_name(f"tgbn-reddit_node_labels.csv{packed}") for packed in ("", ".gz"))

    def make(store: Path) -> EventStream:
        picked = "time, src, dst, score AS weight"
        if labels is None:
            return _tgb.edges(file, store, "tgbn_reddit", picked, _COLUMNS, bipartite=True)
        store.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".read-", suffix=".tmp", dir=store.parent) as work:
            stream = _tgb.edges(file, Path(work) / "edges", "tgbn_reddit", picked, _COLUMNS,
                                bipartite=True)
            return stream.with_nodes(_preferred(labels, stream)).write(store)

    return kept("tgbn_reddit", [file, *([labels] if labels else [])], 1, make)


def _preferred(file: Path, stream: EventStream) -> NodeData:
    """Return the subreddit of the largest share of each label; users without an edge have none."""
    try:
        with duckdb.connect(config={"memory_limit": _tgb.MEMORY}) as connection:
            connection.execute("SET enable_progress_bar = false")
            t, users, found = connection.execute(
                "SELECT time, src, dst FROM (SELECT *, row_number() OVER (PARTITION BY time, src "
                f"ORDER BY share DESC, dst) AS place FROM {_tgb.relation(file, _LABELS)}) "
                "WHERE place = 1 ORDER BY time, src").fetchnumpy().values()
    except duckdb.Error as error:
        raise FedvineError(sentence(error, str(file))) from error
    node = stream.src_ids.numbers([str(u) for u in users])
    known = node >= 0
    classes, y = np.unique(np.asarray(found, str)[known], return_inverse=True)
    return NodeData.make(node[known], np.asarray(t, np.int64)[known], y, classes)
