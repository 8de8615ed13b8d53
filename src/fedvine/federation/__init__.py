"""Federations of real machines: kits, certificates, the server and the sites, over NVIDIA FLARE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.federation.signed import Signer, Trusted
    from fedvine.federation.site import Site

__all__ = ["Signer", "Site", "Trusted"]
__getattr__, __dir__ = lazy(__name__, Signer="signed", Site="site", Trusted="signed")
