"""Two options of FedLink for the arrival of new edges; the algorithm box does not need them.

With ``join = "full"`` a client takes part in a stage's rounds once C new edges have come since it
last did (Section 3.2.1).

With ``share_items = false`` the row of an item stays at the one client that has met the item. A row
that one client alone touches moves by that client's differences, wherever it is kept (with
``aggregate="touching"``); so scores stay, and bytes are saved. A client reports each item that it
meets once, by keyed hash (8 bytes). When a second client meets an item, its row moves to the
server's table with what it has learned, and travels from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedvine.core.clients import Clients
from fedvine.core.expect import Array, Flag, Tensor
from fedvine.core.method import Client, Server, on_client
from fedvine.core.replies import Replies
from fedvine.methods._fedlink.edges import edges
from fedvine.methods._fedlink.rows import MOST_KEYS

# What a client answers when a stage has reached it.
ARRIVAL = {"joins": Flag(), "keys": Array("uint64", (None,), most=MOST_KEYS, keys="unique")}


class ArrivalsMixin:
    """The client's report of new edges, and what the server makes of it."""

    if TYPE_CHECKING:
        join: Any
        share: Any
        share_items: Any
        capacity: Any

    @property
    def some_items_local(self) -> bool:
        """Return whether rows of items stay at a client until another client meets the item."""
        return not self.share_items and "items" in self.share

    def report_arrival(self, client: Client, reported: int) -> dict[str, Any]:
        """Return whether the client joins the stage's rounds, and keys of new items uint64 [n].

        New are all items that it has met, but the first ``reported`` ones.
        """
        client.fresh += len(edges(client.stage)[0])
        C = client.kept.C if self.capacity == "auto" else self.capacity
        joins = self.join == "stage" or client.fresh >= C
        client.fresh = 0 if joins else client.fresh
        return {"joins": joins, "keys": self._new_items(client, reported)}

    def _new_items(self, client: Client, reported: int) -> np.ndarray:
        if not self.some_items_local:
            return np.empty(0, np.uint64)
        # Local ids follow first appearance, so the items met are 0 to the highest id.
        client.met = max(client.met, int(np.asarray(client.stage.dst).max(initial=-1)) + 1)
        client.items.keep_local(reported, client.met, client.past.dst_ids)
        return client.past.dst_ids.keys(np.arange(reported, client.met))

    def settle(self, server: Server, clients: Clients, found: Replies) -> None:
        """Carry out both options, from the clients' reports."""
        if self.join == "full":
            server.joining = [name for name, reply in found.items() if reply["joins"]]
        if self.some_items_local:
            self._share_items(server, clients, found)

    def _share_items(self, server: Server, clients: Clients, found: Replies) -> None:
        """Move the rows of items that a second client has met to the server's table."""
        for name, reply in found.items():
            server.claims.add(name, reply["keys"])
        pending = server.claims.pending()

        def expected(name: str) -> Tensor:
            return Tensor("float32", (len(pending[name]["asked"]), server.items.width))

        def add(name: str, difference: torch.Tensor) -> None:
            if len(difference):
                numbers = server.items.numbers(server.claims.wanted_keys[name])
                server.items.add_(numbers, difference)
            server.claims.done(name)

        if pending:     # a client that does not answer is called again in the next stage
            clients.call(self.hand_over, per_client=pending, quorum=0, expect=expected, fold=add)

    @on_client
    def hand_over(self, client: Client, pending: dict[str, np.ndarray]) -> torch.Tensor:
        """Leave the rows of these items to the server.

        Return the differences of those "asked" for from their first values, float32 [n, d].
        """
        return client.items.release(pending["told"], pending["asked"], client.past.dst_ids)
