"""Transfers of stable coins on Ethereum in the months around Terra's collapse: sender -> receiver.

Source: ``tgbl-coin`` of the Temporal Graph Benchmark, https://tgb.complexdatalab.com, which states
its licence; S. Huang, F. Poursafaei, J. Danovitch, M. Fey, W. Hu, E. Rossi, J. Leskovec, M.
Bronstein, G. Rabusseau, R. Rabbany, "Temporal Graph Benchmark for Machine Learning on Temporal
Graphs", NeurIPS 2023.

As published: 22,809,486 transfers among 638,486 addresses, 2022-04-01 to 2022-11-01, at 1,295,720
different times; the weight is the amount. TGB takes its logarithm to the base 2, and 1 for 0; so
does ``weight`` here.

Stages are 10 days, 22 of them. The data do not have clients: addresses are assigned to five in one
pass over the edges, as a second copy of these would be large.
"""

from __future__ import annotations

from pathlib import Path

from fedvine.data.io.cache import kept
from fedvine.data.stream import EventStream
from fedvine.datasets import _tgb

SPLIT: dict = {"by": "stream", "k": 5}
STAGES: str | int = "10d"
DATES = True

_COLUMNS = {"time": "BIGINT", "src": "VARCHAR", "dst": "VARCHAR", "amount": "DOUBLE"}
_PICKED = "time, src, dst, log2(CASE WHEN amount = 0 THEN 1 ELSE amount END) AS weight"


def load(folder: Path | None = None) -> EventStream:
    """Return the stream: columns ``src``, ``dst``, ``t`` and ``weight``.

    ``t`` is int64, seconds since 1970; ``weight`` is float32. All nodes are of one kind. ``folder``
    holds ``tgbl-coin_edgelist_v2.csv`` or ``tgbl-coin_edgelist.csv``, plain or gzip, with a header
    and rows ``time,src,dst,amount`` (by default ``$FEDVINE_DATA/temporal/tgbl-coin``). Raises
    :class:`FedvineError` if it is not there or cannot be read; there is no download.
    """
    file = _tgb.edge_list("tgbl-coin", ("_v2", ""), folder)
    return kept("tgbl_coin", [file], 1, lambda store: _tgb.edges(
        file, store, "tgbl_coin", _PICKED, _COLUMNS, bipartite=False))
