"""ROLAND (You, Du and Leskovec 2022): the same backbone on one machine that has the whole graph.

The ceiling for methods that share a graph: the first client computes everything. What counts as an
edge between clients is the same as for them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedvine.method import Server, World
from fedvine.methods.dgcolearn import DgCoLearn


class RolandMethod(DgCoLearn):
    """Centralised: one client has all nodes."""

    name: ClassVar[str] = "roland"

    def start(self, world: World) -> Server:
        server = super().start(world)
        server.dealt = np.empty(0, np.int32)
        return server

    def deal(self, server: Server, world: World, count: int) -> None:
        server.owner = server.dealt
        super().deal(server, world, count)
        server.dealt = server.owner
        server.owner = np.where(server.dealt >= 0, 0, -1).astype(np.int32)

    def parts(self, server: Server) -> np.ndarray:
        return server.dealt
