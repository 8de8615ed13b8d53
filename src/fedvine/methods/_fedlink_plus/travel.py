"""Rows that travel, between the server and the clients: the calls of the exchange.

Clients report each user and item once, by keyed hash. Where two know the same, each gets what the
other counts of it (:mod:`fedvine.methods._fedlink_plus.rows`). Rows of users who are asked about,
and have no edge at the client, are lent for the answer alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedvine.core.clients import Clients
from fedvine.core.expect import Array
from fedvine.core.method import Client, Server, on_client
from fedvine.methods._fedlink.events import edges
from fedvine.methods._fedlink_plus import rows as travelling
from fedvine.methods._fedlink_plus.members import Members
from fedvine.tasks.link_prediction import EdgeQueries

SIDES = ("users", "items")


class TravelMixin:
    """The exchange of rows, for a method whose clients have ``counts``, ``keys`` and ``shared``."""

    if TYPE_CHECKING:
        capacity: Any

    def members(self, server: Server, side: str) -> Members:
        """Return who knows which user or item; nodes of one kind are listed once, as items."""
        return server.items if server.one_kind else getattr(server, side)

    def exchange(self, server: Server, clients: Clients, found: Any,
                 before: dict[str, dict[str, int]]) -> None:
        """Let clients that know the same user or item exchange what they counted."""
        server.one_kind = all(reply["one_kind"] for reply in found)
        for name, reply in found.items():
            for side in SIDES:
                if len(reply[side]):
                    getattr(server, side).add(name, reply[side])
        if server.one_kind:
            before = dict.fromkeys(SIDES, before["items"])
        none, marks = np.empty(0, np.int32), {
            side: self.members(server, side).newly_shared(before[side], found.names)
            for side in SIDES}
        message = {n: {side: {mark: marks[side].get(n, {}).get(mark, none) for mark in (
            "shared", "whole")} for side in SIDES} for n in clients.names}
        if any(len(members.names) > 1 for members in (server.users, server.items)):
            rows = clients.call(self.lend, per_client=message, expect=lambda n: {
                "users": {part: travelling.rows(self.members(server, "users").reported(n),
                                                server.one_kind, part)
                          for part in ("step", "whole")},
                "items": {part: travelling.counted(server.items.reported(n), part)
                          for part in ("step", "whole")}})
            sent = {side: give(self.members(server, side), before[side],
                               {n: reply[side] for n, reply in rows.items()})
                    for side, give in zip(SIDES, (travelling.deliver, travelling.totals),
                                          strict=True)}
            to = {n: [sent["users"].get(n), sent["items"].get(n)]
                  for n in clients.names if any(n in sent[side] for side in SIDES)}
            if to:
                clients.call(self.receive, per_client=to)

    @on_client
    def lend(self, client: Client, marks: dict[str, Any]) -> dict[str, Any]:
        """Return what this client counted of users and items that others know, too."""
        counts = client.counts
        for side in SIDES:
            shared = np.zeros(len(client.keys[side]), bool)
            shared[:len(client.shared[side])] = client.shared[side]
            shared[marks[side]["shared"]] = True
            client.shared[side] = shared
        src, dst = edges(client.stage)
        t = np.asarray(client.stage.t, float)
        t = t if client.stage.deleted is None else t[~client.stage.deleted]
        step, whole = travelling.counted_items(counts, dst, client.shared["items"],
                                               marks["items"]["whole"])
        return {"users": {
            "step": travelling.rows_of_stage(counts, client.keys["items"], src, dst, t,
                                             client.shared["users"]),
            "whole": travelling.whole_rows(counts, marks["users"]["whole"])},
            "items": {"step": step, "whole": whole}}

    @on_client
    def receive(self, client: Client, sent: list[Any]) -> None:
        """Enter what other clients counted of this client's users and items."""
        users, items = sent
        if users is not None:
            travelling.receive(client.counts, users)
        if items is not None:
            travelling.receive_items(client.counts, items)
        client.counts.trim(self.capacity)
        client.cache.clear()

    def lend_unknown(self, server: Server, clients: Clients) -> dict[str, Any]:
        """Return by client the rows of users who are asked about and have no edge there."""
        members = self.members(server, "users")
        asked = clients.call(self.look, expect={"local": Array("int64", ("n",), low=0),
                                                "key": Array("uint64", ("n",))})
        wanted: dict[str, list[np.ndarray]] = {}
        for reply in asked:
            for k, local in zip(*members.find(reply["key"])[1:], strict=True):
                wanted.setdefault(members.names[k], []).append(local)
        wanted = {n: [np.unique(several).astype(np.int32)] for n, several in wanted.items()
                  if n in clients.names}
        empty: dict[str, Any] = dict.fromkeys(asked.names)
        if not wanted:
            return empty
        with clients.unasked():
            given = clients.call(self.give, expect=lambda n: travelling.rows(
                members.reported(n), server.one_kind),
                                 per_client={n: several[0] for n, several in wanted.items()})
        for name, reply in asked.items():
            several = []
            for of, rows in given.items():
                if of == name or not len(rows["local"]):
                    continue
                place = travelling.places(reply["key"], members.keys[of][rows["local"]])
                kept = place >= 0
                several.append({key: value[kept] for key, value in rows.items()}
                               | {"local": reply["local"][place[kept]]})
            if several:
                empty[name] = {key: np.concatenate([one[key] for one in several])
                               for key in several[0]}
        return empty

    @on_client
    def look(self, client: Client, queries: EdgeQueries) -> dict[str, np.ndarray]:
        """Return local numbers and keys of the queried users without an edge here."""
        users = travelling.unknown(client.counts, queries.src)
        return {"local": users, "key": client.past.src_ids.keys(users)}

    @on_client
    def give(self, client: Client, users: np.ndarray) -> dict[str, np.ndarray]:
        """Return the rows of users who are asked about elsewhere."""
        return travelling.whole_rows(client.counts, users)
