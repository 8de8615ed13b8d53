"""FedLink's model: rows of users and items, the edges that messages pass over, and the encoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedvine.core import tree
from fedvine.core.state import Client, Memory
from fedvine.experiments.run import Run
from fedvine.methods._fedlink import inputs
from fedvine.methods._fedlink.rows import SIDES, Touched, graph_of, receive, request
from fedvine.methods.fedlink import FedLink
from fedvine.nn.sage import BipartiteSage
from fedvine.results.exported import Exported, named, ready

HOW = ("GraphSAGE over the edges that the client keeps (two layers, users and items), then the dot "
       "product of a user's and an item's row, or their cosine times a learned scale. Users and "
       "items are those with an edge at the client; users of other clients are not in the export.")


def fits(method: Any) -> bool:
    """Return whether a method answers as FedLink does."""
    return isinstance(method, FedLink) and all(
        getattr(type(method), name) is getattr(FedLink, name)
        for name in ("predict", "passing", "look", "answer", "encoder"))


def exported(run: Run, top: int) -> Exported:
    """Return the model of a finished run; ``top`` is not used."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, FedLink)
    made = Exported("fedlink", HOW, {"cosine": np.array([method.score_by == "cosine"])})
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
