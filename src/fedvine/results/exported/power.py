"""POWER's model, as of all methods whose network is a GAT: weights, and the clients' graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from fedvine.core import tree
from fedvine.experiments.labels import Labels
from fedvine.experiments.run import Run
from fedvine.methods._power.training import Continual
from fedvine.results.exported import Exported, named, ready
from fedvine.rivals._personal import Personal

HOW = "Graph attention, two layers and one head, over a client's graph; scores of its classes."


def fits(method: Any) -> bool:
    """Return whether a method answers by a GAT of the client, or of all."""
    return isinstance(method, Continual) and not isinstance(method, Personal) and all(
        getattr(type(method), name) is getattr(Continual, name)
        for name in ("predict", "scores", "inputs", "answer", "net"))


def exported(run: Run, top: int) -> Exported:
    """Return the model of a finished run; ``top`` is not used."""
    server, method = run.at_the_end()[0], run.method
    assert isinstance(method, Continual)
    made = Exported("power", HOW)
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
