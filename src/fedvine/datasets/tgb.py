"""Data sets of the Temporal Graph Benchmark, https://tgb.complexdatalab.com, as it publishes them.

The data do not have clients: nodes are assigned to five in one pass over the edges, as a second
copy of these would be large.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np

from fedvine.core.errors import FedvineError
from fedvine.core.files import work_folder
from fedvine.data.io.cache import kept
from fedvine.data.io.read import read
from fedvine.data.io.store import sentence
from fedvine.data.node_data import NodeData
from fedvine.data.stream import EventStream
from fedvine.datasets import folders, found
from fedvine.datasets._streams import relation

_MEMORY = "3GB"     # of DuckDB while it sorts an edge list; what does not fit goes to disk
_LABELS = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR", "share": "DOUBLE"}


class _EdgeList:
    """An edge list: where it is, and how its rows are read."""

    name: ClassVar[str]
    SPLIT: ClassVar[dict[str, Any]] = {"by": "stream", "k": 5}
    DATES: ClassVar[bool] = True
    COLUMNS: ClassVar[dict[str, str]]       # of the file, with their types
    PICKED: ClassVar[str]                   # time, src, dst and weight, as SQL
    BIPARTITE: ClassVar[bool]

    @classmethod
    def _file(cls, folder: Path | None, *versions: str) -> Path:
        """Return the edge list, newest version first, plain or gzip."""
        name = cls.name.replace("_", "-")
        places = folders(folder, f"temporal/{name}")
        names = [f"{name}_edgelist{version}.csv" for version in versions]
        if file := found(place / f"{one}{packed}" for place in places for one in names
                         for packed in ("", ".gz")):
            return file
        raise FedvineError(
            f"{names[0]} was not found in {places[0] if places else 'FEDVINE_DATA, which is unset'}"
            f"; get {name} from https://tgb.complexdatalab.com, unpack it, and name its folder.")

    @classmethod
    def _edges(cls, file: Path, store: Path) -> EventStream:
        return read(f"SELECT {cls.PICKED} FROM {relation(file, cls.COLUMNS, head=1)}", src="src",
                    dst="dst", time="time", weight="weight", bipartite=cls.BIPARTITE, store=store,
                    name=cls.name, memory_limit=_MEMORY)


class TgblCoin(_EdgeList):
    """Transfers of stable coins on Ethereum in the months around Terra's collapse: from -> to.

    Source: ``tgbl-coin`` of the Temporal Graph Benchmark, https://tgb.complexdatalab.com, which
    states its licence; S. Huang, F. Poursafaei, J. Danovitch, M. Fey, W. Hu, E. Rossi, J. Leskovec,
    M. Bronstein, G. Rabusseau, R. Rabbany, "Temporal Graph Benchmark for Machine Learning on
    Temporal Graphs", NeurIPS 2023.

    As published: 22,809,486 transfers among 638,486 addresses, 2022-04-01 to 2022-11-01, at
    1,295,720 different times; the weight is the amount. TGB takes its logarithm to the base 2, and
    1 for 0; so does ``weight`` here. Stages are 10 days, 22 of them.
    """

    name: ClassVar[str] = "tgbl_coin"
    STAGES: ClassVar[str] = "10d"
    COLUMNS: ClassVar[dict[str, str]] = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR",
                                         "amount": "DOUBLE"}
    PICKED = "time, src, dst, log2(CASE WHEN amount = 0 THEN 1 ELSE amount END) AS weight"
    BIPARTITE = False

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``.

        ``t`` is int64, seconds since 1970; ``weight`` is float32. All nodes are of one kind.
        ``folder`` holds ``tgbl-coin_edgelist_v2.csv`` or ``tgbl-coin_edgelist.csv``, plain or gzip,
        with a header and rows ``time,src,dst,amount`` (by default
        ``$FEDVINE_DATA/temporal/tgbl-coin``). Raises :class:`FedvineError` if it is not there or
        cannot be read; there is no download.
        """
        file = cls._file(folder, "_v2", "")
        return kept(cls.name, [file], 1, lambda store: cls._edges(file, store))


class TgbnReddit(_EdgeList):
    """Fifteen years of posts on Reddit: user -> subreddit, with the one that each user prefers.

    Source: ``tgbn-reddit`` of the Temporal Graph Benchmark, https://tgb.complexdatalab.com, which
    states its licence; S. Huang, F. Poursafaei, J. Danovitch, M. Fey, W. Hu, E. Rossi, J. Leskovec,
    M. Bronstein, G. Rabusseau, R. Rabbany, "Temporal Graph Benchmark for Machine Learning on
    Temporal Graphs", NeurIPS 2023.

    As published: 27,174,118 posts of 2005 to 2019 among 11,766 users and subreddits, 698 of them
    subreddits, at 21,889,537 different times. The weight is a post's score: votes for it less those
    against. The file's number of words is not read. Stages are 90 days, some 60 of them.

    The labels of the benchmark are the shares of a user's posts of the coming week by subreddit.
    The class of a user here is the subreddit of the largest share, of equal ones the first in the
    alphabet, from the time of the label on. TGB scores a ranking of all subreddits instead
    (NDCG@10), so scores of classes cannot be compared with its leaderboard.
    """

    name: ClassVar[str] = "tgbn_reddit"
    STAGES: ClassVar[str] = "90d"
    COLUMNS: ClassVar[dict[str, str]] = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR",
                                         "words": "VARCHAR", "score": "DOUBLE"}
    PICKED = "time, src, dst, score AS weight"
    BIPARTITE = True

    @classmethod
    def load(cls, folder: Path | None = None) -> EventStream:
        """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``, maybe ``nodes``.

        ``t`` is int64, seconds since 1970; ``weight`` is float32. ``folder`` holds
        ``tgbn-reddit_edgelist.csv``, with a header and rows ``ts,src,subreddit,num_words,score``,
        and for classes of users ``tgbn-reddit_node_labels.csv``, with a header and rows
        ``ts,src,subreddit,weight``, both plain or gzip (by default
        ``$FEDVINE_DATA/temporal/tgbn-reddit``). Raises :class:`FedvineError` if the first is not
        there or one cannot be read; there is no download.
        """
        file = cls._file(folder, "")
        labels = found(file.with_name(f"tgbn-reddit_node_labels.csv{packed}")
                       for packed in ("", ".gz"))

        def make(store: Path) -> EventStream:
            if labels is None:
                return cls._edges(file, store)
            store.parent.mkdir(parents=True, exist_ok=True)
            with work_folder(store.parent) as work:
                stream = cls._edges(file, work / "edges")
                return stream.with_nodes(_preferred(labels, stream)).write(store)

        return kept(cls.name, [file, *([labels] if labels else [])], 1, make)


def _preferred(file: Path, stream: EventStream) -> NodeData:
    """Return the subreddit of the largest share of each label; users without an edge have none."""
    try:
        with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
            connection.execute("SET enable_progress_bar = false")
            t, users, found = connection.execute(
                "SELECT time, src, dst FROM (SELECT *, row_number() OVER (PARTITION BY time, src "
                f"ORDER BY share DESC, dst) AS place FROM {relation(file, _LABELS, head=1)}) "
                "WHERE place = 1 ORDER BY time, src").fetchnumpy().values()
    except duckdb.Error as error:
        raise FedvineError(sentence(error, str(file))) from error
    node = stream.src_ids.numbers([str(u) for u in users])
    known = node >= 0
    classes, y = np.unique(np.asarray(found, str)[known], return_inverse=True)
    return NodeData.make(node[known], np.asarray(t, np.int64)[known], y, classes)
