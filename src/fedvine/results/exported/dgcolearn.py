"""DG-CoLearn's model: the newest rows of all nodes, the decoder, and the layers' weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedvine.core import tree
from fedvine.experiments.run import Run
from fedvine.methods._dgcolearn.placement import renumber
from fedvine.methods.dgcolearn import DgCoLearn, ahead
from fedvine.nn.roland import Network
from fedvine.results.exported import Exported, named

HOW = ("Scores of pairs from the rows of their nodes (their product, and a layer of 3 rows), or of "
       "classes from a node's row. The rows are those of the newest snapshot; the weights of the "
       "layers that made them are there, too.")
ALL = "all"


def fits(method: Any) -> bool:
    """Return whether a method answers as DG-CoLearn does, by rows of nodes."""
    return (isinstance(method, DgCoLearn) and type(method).answer is DgCoLearn.answer
            and method.backbone != "dygformer")


def exported(run: Run, top: int) -> Exported:
    """Return the model of a finished run; ``top`` is not used."""
    stream, method = run.parts[ALL], run.method
    assert isinstance(method, DgCoLearn)
    one = np.zeros(1, np.int64)
    run.ask(ALL, {"nodes": one} if method.target == "classes" else
            run.protocol.pairs(run.plan, one, one, []))         # the server has the last stage
    assert run.server is not None and isinstance(run.server.net, Network)
    run.at_the_end()
    server = ahead(run.server, deep=False)
    renumber(server, server.stage)
    count = stream.num_src + (stream.num_dst if stream.bipartite else 0)
    try:
        rows, at = method.rows_of(server, run.clients, np.arange(count)[None])
    finally:
        run.clients.log = []
    net = run.server.net
    made = Exported("dgcolearn", HOW, {name: value.numpy()
                                       for name, value in tree.weights(net).items()})
    made.model["directed"] = np.array([net.directed])
    z = rows.detach().numpy()[at[0]]
    part = server.placement.part[:count]
    sides = {"users": (stream.src_ids, slice(stream.num_src)),
             "items": (stream.dst_ids, slice(stream.num_src, None))} if stream.bipartite else {
        "users": (stream.src_ids, slice(None)), "items": (stream.src_ids, slice(None))}
    names = np.array([*run.clients.names, None], object)
    made.tables[ALL] = {side: named(ids, embedding=z[rows], client=names[part[rows]])
                        for side, (ids, rows) in sides.items()}
    return made
