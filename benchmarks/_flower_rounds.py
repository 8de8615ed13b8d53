"""Rounds of Flower's simulation without steps; prints JSON.

    PYTHON -m benchmarks._flower_rounds CLIENTS ROUNDS

PYTHON has ``flwr[simulation]``, which needs other versions of what fedvine needs; this file imports
nothing else but NumPy. Each client gets a model of 1 MB and sends 40 kB, as in
:mod:`benchmarks._ray`, with two workers of one processor each. The JSON has the seconds of each
round, and Flower's version.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

DOWN, UP, WORKERS = 250_000, 10_000, 2      # float32 numbers, and processes


def rounds(clients: int, count: int) -> dict[str, Any]:
    """Return the seconds of each of ``count`` rounds with so many clients."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    import flwr
    from flwr.app import ArrayRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation
    client, server, found = ClientApp(), ServerApp(), []

    @client.train()
    def step(message: Any, context: Any) -> Any:
        model = message.content["model"].to_numpy_ndarrays()[0]
        return Message(RecordDict({"step": ArrayRecord([model[:UP] + 1])}), reply_to=message)

    @server.main()
    def main(grid: Any, context: Any) -> None:
        nodes: list[int] = []
        while len(nodes) < clients:
            nodes = list(grid.get_node_ids())
        total = np.zeros(UP, np.float32)
        for _ in range(count):
            began = time.perf_counter()
            model = ArrayRecord([np.zeros(DOWN, np.float32)])
            replies = list(grid.send_and_receive([
                Message(RecordDict({"model": model}), dst_node_id=node, message_type="train")
                for node in nodes]))
            for reply in replies:
                total = total + reply.content["step"].to_numpy_ndarrays()[0]
            found.append(time.perf_counter() - began)
            assert len(replies) == clients and not any(r.has_error() for r in replies)

    run_simulation(server, client, num_supernodes=clients, backend_config={
        "client_resources": {"num_cpus": 1},
        "init_args": {"num_cpus": WORKERS, "address": "local"}})
    return {"seconds": found, "flwr": flwr.__version__}


if __name__ == "__main__":
    print("\n" + json.dumps(rounds(*map(int, sys.argv[1:]))))
