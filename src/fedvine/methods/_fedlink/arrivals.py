"""Arrivals: who joins a stage's rounds, and which rows of items stay at home.

With ``join = "full"`` a client joins once C new edges have come since it last did (Section 3.2.1).
With ``share_items = false`` a row that no other client needs is not shared, and nothing changes but
bytes.

A row that one client alone touches moves by that client's differences, wherever it lives (with
``aggregate="touching"``). So a client keeps the rows of its items, and says once what it has met,
by keyed hashes (8 bytes an item). When a second client meets an item, its row moves to the server's
table with what it has learned, and travels from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedvine.core.clients import Clients, Replies
from fedvine.core.expect import Array, Flag, Tensor
from fedvine.core.method import Client, Server, on_client
from fedvine.methods._fedlink.batches import MOST_KEYS, edges

# What a client answers when a stage has reached it.
ARRIVAL = {"joins": Flag(), "keys": Array("uint64", (None,), most=MOST_KEYS, keys="unique")}


class Arrivals:
    """What a client says of new edges, and what the server makes of it."""

    if TYPE_CHECKING:
        join: Any
        share: Any
        share_items: Any

        def per_buffer(self, client: Client) -> int: ...

    def report_arrival(self, client: Client, heard: int) -> dict[str, Any]:
        """Whether C new edges have come since this client last joined, and what items are new."""
        client.fresh += len(edges(client.stage)[0])
        joins = self.join == "stage" or client.fresh >= self.per_buffer(client)
        client.fresh = 0 if joins else client.fresh
        return {"joins": joins, "keys": self.new_items(client, heard)}

    @property
    def claims(self) -> bool:
        """Whether single rows stay at home."""
        return not self.share_items and "items" in self.share

    def new_items(self, client: Client, heard: int) -> np.ndarray:
        """Keys (uint64) of items that the server, which has ``heard`` of so many, does not know
        this client to have met; their rows live here from now on."""
        if not self.claims:
            return np.empty(0, np.uint64)
        # Local numbers follow first appearance, so what was met is 0 to the highest number.
        client.met = max(client.met, int(np.asarray(client.stage.dst).max(initial=-1)) + 1)
        client.items.adopt(heard, client.met, client.past.dst_ids)
        return client.past.dst_ids.keys(np.arange(heard, client.met))

    def settle(self, server: Server, clients: Clients, met: Replies) -> None:
        """Items that two clients have met by now: their rows move to the server's table."""
        for name, found in met.items():
            server.claims.claim(name, found["keys"])
        owed = server.claims.owed()

        def take(name: str, change: torch.Tensor) -> None:
            if len(change):
                server.items.add_(server.items.rows(server.claims.keys[name]), change)
            server.claims.settled(name)

        def change(name: str) -> Tensor:
            return Tensor("float32", (len(owed[name]["asked"]), server.items.width))

        if owed:    # who does not answer now is asked again
            clients.call(self.hand_over, per_client=owed, quorum=0, expect=change, fold=take)

    @on_client
    def hand_over(self, client: Client, owed: dict[str, np.ndarray]) -> torch.Tensor:
        """Rows (local ids) that others need too; what those ``asked`` for have learned here."""
        return client.items.share(owed["told"], owed["asked"], client.past.dst_ids)
