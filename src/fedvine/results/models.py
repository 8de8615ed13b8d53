"""The parts of an export: arrays by readable names, and tables with names of nodes.

A model is exported by the first of :data:`KINDS` that answers as its method does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from scipy.sparse import issparse

from fedvine.core import tree
from fedvine.core.state import Client, Memory
from fedvine.data.ids import Ids
from fedvine.experiments.answers import Labels
from fedvine.experiments.forecasts import Forecasts
from fedvine.experiments.run import Run
from fedvine.methods._dgcolearn.placement import renumber
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.rows import SIDES, Touched, graph_of, receive, request
from fedvine.methods._fedlink_plus import level, scoring, travel
from fedvine.methods._fedlink_plus.features import TABLE, WIDTH
from fedvine.methods.dgcolearn import DgCoLearn, ahead
from fedvine.methods.fedavg import FedAvg
from fedvine.methods.fedlink import FedLink
from fedvine.methods.fedlink_plus import FedLinkPlus
from fedvine.nn.roland import Network
from fedvine.nn.sage import BipartiteSage
from fedvine.rivals._personal import Personal


@dataclass
class Exported:
    """A run's model, in a form that does not need fedvine.

    - ``model``: arrays that all share, for ``model.safetensors``
    - ``clients``: arrays of each client, for its ``arrays.safetensors``
    - ``tables``: tables of each client by the file's name without ``.parquet``; of a large one its
      pieces, made as they are written
    - ``script``: the part of ``load.py`` that scores by it; empty: there is none
    - ``how``: a sentence on what it computes
    """

    script: str
    how: str
    model: dict[str, np.ndarray] = field(default_factory=dict)
    clients: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    tables: dict[str, dict[str, pa.Table | Iterator[pa.Table]]] = field(default_factory=dict)


def ready(run: Run, name: str) -> Client:
    """Return a client's memory at the end of a finished run, with its data attached."""
    worker = run.clients.workers[name]  # type: ignore[attr-defined]
    return worker.client


def named(ids: Ids, **columns: Any) -> pa.Table:
    """Return a table with the names of nodes and columns of values; a matrix [n, d] is a list."""
    made = {"name": pa.array([ids[i] for i in range(len(ids))], pa.string())}
    for column, values in columns.items():
        array = np.asarray(values)
        made[column] = (pa.FixedSizeListArray.from_arrays(pa.array(array.reshape(-1)),
                                                          array.shape[1])
                        if array.ndim == 2 and array.shape[1] else pa.array(array.tolist()))
    return pa.table(made)


def plain(values: dict[str, Any], under: str = "") -> dict[str, np.ndarray]:
    """Return all arrays and tensors of a memory by their path; what is neither is left out."""
    found: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if hasattr(value, "state_dict"):
            value = value.state_dict()
        if isinstance(value, dict):
            found |= plain({str(k): v for k, v in value.items()}, f"{under}{name}.")
        elif hasattr(value, "detach"):
            found[f"{under}{name}"] = value.detach().cpu().numpy()
        elif isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            found[f"{under}{name}"] = value
    return found


# -- FedLink: rows of users and items, the edges that messages pass over, and the encoder ----------
FEDLINK = (
    "GraphSAGE over the edges that the client keeps (two layers, users and items), then the dot "
    "product of a user's and an item's row, or their cosine times a learned scale. Users and items "
    "are those with an edge at the client; users of other clients are not in the export.")


def answers_as_fedlink(method: Any) -> bool:
    """Return whether a method answers as FedLink does."""
    return isinstance(method, FedLink) and all(
        getattr(type(method), name) is getattr(FedLink, name)
        for name in ("predict", "passing", "look", "answer", "encoder"))


def of_fedlink(run: Run, top: int) -> Exported:
    """Return the model of a finished run; ``top`` is not used."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, FedLink)
    made = Exported("fedlink", FEDLINK, {"cosine": np.array([method.score_by == "cosine"])})
    for name, part in run.parts.items():
        if not len(part):
            continue
        one = np.zeros(1, np.int64)
        run.ask(name, run.protocol.pairs(run.plan, one, one, []))   # brings the client to the end
        client = ready(run, name)
        net: Any = client.model.cpu() if "model" not in method.share else tree.load(
            method.net(client.world), server.model)
        x, graph = _inputs(method, server, client, net)
        with torch.no_grad():
            z = net(x["users"], x["items"], graph, graph.weight)
        arrays = made.clients[name] = {
            "users.rows": x["users"].numpy(), "items.rows": x["items"].numpy(),
            "edges.user": graph.src.numpy(), "edges.item": graph.dst.numpy(),
            "edges.count": graph.weight.numpy()}
        (arrays if "model" not in method.share else made.model).update(weights(net))
        made.tables[name] = {side: named(ids, embedding=rows.numpy()) for side, ids, rows in zip(
            SIDES, (part.src_ids, part.dst_ids), z, strict=True)}
    return made


def weights(net: BipartiteSage) -> dict[str, np.ndarray]:
    """Return the encoder's weights by name: of each layer and side self, near, degree and bias."""
    found = {"scale": net.weights[-1:].detach().exp().numpy()}
    for layer in range(net.layers):
        for side, (own, near, rest) in zip(SIDES, net.weights_of(layer), strict=True):
            found |= {f"layer{layer}.{side}.{name}": value.detach().numpy().copy()
                      for name, value in (("self", own), ("near", near), ("degree", rest[0]),
                                          ("bias", rest[1]))}
    return found


def _inputs(method: FedLink, server: Memory, client: Client, net: Any
            ) -> tuple[dict[str, torch.Tensor], Any]:
    """Return the inputs float32 [n, d] of all nodes of a client, and the graph of its edges."""
    nodes = Touched(np.arange(client.past.num_src), np.arange(client.past.num_dst))
    asked = request(client, nodes)
    sent = {side: getattr(server, side).fetch(asked[side], False)[0] for side in SIDES}
    with torch.no_grad():
        x = inputs.joined(client, net, nodes, receive(client, nodes, sent))
    return ({side: rows.detach().cpu() for side, rows in x.items()},
            graph_of(nodes, *method.retained(client), torch.device("cpu")))


# -- fedlink_plus: weights and level, and the features of pairs at each client --------------------
PAIRS = 1 << 18     # that are scored, and then written, at a time
FEDLINK_PLUS = (
    "The sum of a pair's features times the weights, on a level that users have in common. "
    "Features are counts of the client's own edges at the end of the run; they are here for all "
    "pairs that met, and for the likeliest items of each user with an edge at the client; users of "
    "other clients are not in the export.")


def answers_as_fedlink_plus(method: Any) -> bool:
    """Return whether a method answers as fedlink_plus does."""
    return isinstance(method, FedLinkPlus)


def of_fedlink_plus(run: Run, top: int) -> Exported:
    """Return the model of a finished run, with features of the ``top`` items of each user."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, FedLinkPlus)
    common, b = method.answering(server)
    made = Exported("fedlink_plus", FEDLINK_PLUS)
    columns = [*(f.name for f in TABLE), *(f"edge_{j}" for j in range(len(common) - WIDTH))]
    forecasts = Forecasts(run)
    for name, part in run.parts.items():
        if not len(part):
            continue
        one = np.zeros(1, np.int64)
        run.ask(name, run.protocol.pairs(run.plan, one, one, []))
        client = ready(run, name)
        w, alone = client.own.better(common, client.samples)
        made.clients[name] = {"weights": w, "level": level.START if alone else b}
        met = level.known(client.counts, np.arange(part.num_src), run.plan.asked)  # type: ignore[attr-defined]
        made.tables[name] = {"users": named(part.src_ids, known=met),
                             "pairs": _pairs(forecasts, method, client, name, top, columns)}
    return made


def _pairs(forecasts: Forecasts, method: FedLinkPlus, client: Client, name: str, top: int,
           columns: list[str]) -> Iterator[pa.Table]:
    """Yield the features of a client's pairs, a block of users at a time, in their order."""
    part, asked = forecasts.parts[name], forecasts.run.plan.asked  # type: ignore[attr-defined]
    users, items = (pa.array([ids[i] for i in range(len(ids))], pa.string())
                    for ids in (part.src_ids, part.dst_ids))
    order = np.argsort(part.src, kind="stable")
    begins = np.searchsorted(part.src[order], np.arange(part.num_src + 1))
    step = max(1, PAIRS // part.num_dst)
    blocks = (np.arange(part.num_src)[start:start + step]
              for start in range(0, part.num_src, step))
    for best in chain.from_iterable(forecasts.blocks(name, some, max(top, 1)) for some in blocks):
        own = order[begins[best.user[0]]:begins[best.user[-1] + 1]]
        there = (best.score > -np.inf) & (top > 0)
        pairs = np.unique(np.concatenate([
            part.src[own].astype(np.int64) * part.num_dst + part.dst[own],
            np.repeat(best.user, there.sum(1)) * part.num_dst + best.item[there]]))
        src, dst = np.divmod(pairs, part.num_dst)
        if not part.directed:       # a score is the mean of both directions
            src, dst = np.append(src, dst), np.append(dst, src)
        x = scoring.features(client, src, dst, np.full(len(src), asked),
                             travel.lent(client.counts, None), method.near_by)
        yield pa.table({"user": users.take(pa.array(src)), "item": items.take(pa.array(dst)), **{
            column: pa.array(x[:, j]) for j, column in enumerate(columns)}})


# -- POWER, and all methods whose network is a GAT: weights, and the clients' graphs ---------------
POWER = "Graph attention, two layers and one head, over a client's graph; scores of its classes."


def answers_as_power(method: Any) -> bool:
    """Return whether a method answers by a GAT of the client, or of all."""
    return isinstance(method, FedAvg) and not isinstance(method, Personal) and all(
        getattr(type(method), name) is getattr(FedAvg, name)
        for name in ("predict", "scores", "inputs", "answer", "net"))


def of_power(run: Run, top: int) -> Exported:
    """Return the model of a finished run; ``top`` is not used."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, FedAvg)
    made = Exported("power", POWER)
    labels = Labels(run).table()
    for name, part in run.parts.items():
        if not len(part):
            continue
        x: Any = part.x
        run.ask(name, {"nodes": np.zeros(1, np.int64)})
        client = ready(run, name)
        features = ({"x": x} if not issparse(x) else {
            "x.data": x.data, "x.indices": x.indices, "x.indptr": x.indptr,
            "x.shape": np.array(x.shape)})
        made.clients[name] = {**features, "edges": part.edges.astype(np.int64)}
        local = method.answers == "local"
        (made.clients[name] if local else made.model).update(
            {key: value.numpy() for key, value in tree.weights(client.model).items()} if local else
            {key: value.numpy() for key, value in server.model.items()})
        net = client.model.cpu() if local else tree.load(method.net(client.world), server.model)
        made.tables[name] = {
            "nodes": named(part.names(), embedding=net.embed(method.inputs(part)).detach().numpy()),
            "labels": labels.filter([c == name for c in labels["client"].to_pylist()])}
    return made


# -- DG-CoLearn: the newest rows of all nodes, the decoder, and the layers' weights ----------------
DGCOLEARN = (
    "Scores of pairs from the rows of their nodes (their product, and a layer of 3 rows), or of "
    "classes from a node's row. The rows are those of the newest snapshot; the weights of the "
    "layers that made them are there, too.")
ALL = "all"


def answers_as_dgcolearn(method: Any) -> bool:
    """Return whether a method answers as DG-CoLearn does, by rows of nodes."""
    return (isinstance(method, DgCoLearn) and type(method).answer is DgCoLearn.answer
            and method.backbone != "dygformer")


def of_dgcolearn(run: Run, top: int) -> Exported:
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
    made = Exported("dgcolearn", DGCOLEARN, {name: value.numpy()
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


KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Run, int], Exported]], ...] = (
    (answers_as_fedlink, of_fedlink), (answers_as_fedlink_plus, of_fedlink_plus),
    (answers_as_power, of_power), (answers_as_dgcolearn, of_dgcolearn))
