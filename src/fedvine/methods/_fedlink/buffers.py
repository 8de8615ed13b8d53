"""What a FedLink client keeps, and one buffer of it (Section 3.2.1): S buffers of C edges, FIFO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.method import Client
from fedvine.methods._fedlink.auto_capacity import AutoCapacity
from fedvine.methods._fedlink.batches import Batch, edges, make_batch
from fedvine.methods._fedlink.edge_buffer import EdgeBuffer

# With capacity = "auto": edges of a buffer are 1,000 to 64,000, as a network learns little from
# fewer and forgetting them saves nothing; and where a user has MANY edges on average, an even draw
# leaves enough of them, else it tears apart what came together.
SMALLEST, DOUBLINGS, MANY = 1000, 6, 5


class Buffers:
    """Constant edge buffers, or with ``capacity = "auto"`` each client's own."""

    if TYPE_CHECKING:
        capacity: Any
        buffers: Any
        draw: Any
        device: Any

    def make_room(self, client: Client) -> None:
        """Empty buffers."""
        client.kept = EdgeBuffer(self.size())
        if self.capacity == "auto":
            client.lookback = AutoCapacity([self.buffers * SMALLEST << n
                                            for n in range(DOUBLINGS + 1)])

    def size(self) -> int:
        """Edges that a client keeps, S x C, at first."""
        return self.buffers * (SMALLEST if self.capacity == "auto" else self.capacity)

    def per_buffer(self, client: Client) -> int:
        """Edges in a buffer, C."""
        return (-(-client.kept.capacity // self.buffers) if self.capacity == "auto" else
                self.capacity)

    def keep(self, client: Client) -> None:
        """FIFO; with ``capacity = "auto"`` as many edges as tell what comes."""
        new = edges(client.stage)
        client.kept.push(*new)
        if self.capacity == "auto":
            src, dst = edges(client.past)
            client.lookback.see(src, dst, len(new[0]), client.rng("lookback"))
            wanted = client.lookback.wanted(len(src))
            if not 0.8 < wanted / client.kept.capacity < 1.25:
                client.kept.refill(wanted, src[-wanted:], dst[-wanted:])

    def retained(self, client: Client) -> tuple[np.ndarray, np.ndarray]:
        """All edges that the client still has."""
        return client.kept.last(0, len(client.kept))

    def batch(self, client: Client, draw: np.random.Generator) -> Batch:
        """One buffer, kept in the cache until the buffers change; or edges drawn evenly."""
        count, C = len(client.kept), self.per_buffer(client)
        how = self.draw or ("buffer" if self.capacity != "auto" else
                            "uniform" if count >= MANY * len(client.users.held) else "newest")
        if how == "uniform":
            src, dst = self.retained(client)
            chosen = np.sort(draw.choice(count, min(C, count), replace=False))
            return make_batch(src[chosen], dst[chosen], self.device)
        s = int(draw.integers(0, max(-(-count // C), 1)))
        if how == "newest" and draw.random() < 0.5:
            s = 0
        name = (client.kept.seen, s)
        if name not in client.cache:
            for old in [k for k in client.cache if isinstance(k, tuple) and k[0] != name[0]]:
                del client.cache[old]
            src, dst = client.kept.last(s * C, (s + 1) * C)
            client.cache[name] = make_batch(src, dst, self.device)
        return client.cache[name]
