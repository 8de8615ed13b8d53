"""The networks that a method of the DG-CoLearn family chooses from by its field ``backbone``.

A network has messages [n, m_l] for each layer, whose sums over neighbours are all that a layer
reads of other nodes; rows [n, out] that it computes of these; and states of nodes, which begin with
these rows (:class:`fedvine.nn.roland.Network`). Whatever keeps to this is exact through sums before
every layer, and in time that follows what changed. DyGFormer does not: it has no rows of nodes, and
reads the events of both ends of a pair.
"""

from __future__ import annotations

from typing import Any, Literal

from fedvine.nn.dygformer import DyGFormer
from fedvine.nn.evolvegcn import EvolveGCN
from fedvine.nn.gcrn import GcrnBaseline, GcrnGru, GcrnLstm
from fedvine.nn.roland import Network, Roland
from fedvine.nn.tgn import Tgn

#: Backbones that read nothing but a node's row and state and sums over its neighbours.
Exact = Literal["sage", "gcn", "evolvegcn-o", "gcrn-baseline", "gcrn-gru", "gcrn-lstm"]
Backbone = Literal["sage", "gcn", "evolvegcn-o", "evolvegcn-h", "gcrn-baseline", "gcrn-gru",
                   "gcrn-lstm", "tgn", "dygformer"]

GCRN = {"gcrn-baseline": GcrnBaseline, "gcrn-gru": GcrnGru, "gcrn-lstm": GcrnLstm}
OTHERS: dict[str, type[Network]] = {**GCRN, "tgn": Tgn}


def network(backbone: Backbone, temporal: Any, *widths: int, seed: int, classes: int,
            directed: bool, patch: int = 1) -> Network:
    """Build the network of ``widths`` (features, hidden, layers) that has this name.

    ``temporal`` is for :class:`Roland`, the backbones "sage" and "gcn", alone, ``patch`` for
    :class:`DyGFormer`.
    """
    shape: Any = {"seed": seed, "classes": classes, "directed": directed}
    if backbone in ("sage", "gcn"):
        return Roland(*widths, backbone=backbone, temporal=temporal, **shape)
    if backbone in ("evolvegcn-o", "evolvegcn-h"):
        return EvolveGCN(*widths, version="h" if backbone == "evolvegcn-h" else "o", **shape)
    if backbone == "dygformer":
        return DyGFormer(*widths, patch=patch, **shape)
    return OTHERS[backbone](*widths, **shape)
