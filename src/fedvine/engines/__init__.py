"""Ways to carry calls to clients: in this process, with faults, on a cluster, behind bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.engines.cluster import RayClients
    from fedvine.engines.faults import MockClients
    from fedvine.engines.local import LocalClients
    from fedvine.engines.remote import RemoteClients

__all__ = ["LocalClients", "MockClients", "RayClients", "RemoteClients"]
__getattr__, __dir__ = lazy(__name__, LocalClients="local", MockClients="faults",
                            RayClients="cluster", RemoteClients="remote")
