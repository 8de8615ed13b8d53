"""Ways to carry calls to clients: in this process, with faults, behind bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.engines.faults import MockClients
    from fedvine.engines.local import LocalClients
    from fedvine.engines.remote import RemoteClients

__all__ = ["LocalClients", "MockClients", "RemoteClients"]
__getattr__, __dir__ = lazy(__name__, LocalClients="local", MockClients="faults",
                            RemoteClients="remote")
