"""Networks, and the arithmetic under them: sparse means, embeddings by key, compiled loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.nn.embedding import ClientEmbedding, EmbeddingTable
    from fedvine.nn.gat import Gat
    from fedvine.nn.sage import BipartiteSage

__all__ = ["BipartiteSage", "ClientEmbedding", "EmbeddingTable", "Gat"]
__getattr__, __dir__ = lazy(__name__, BipartiteSage="sage", ClientEmbedding="embedding",
                            EmbeddingTable="embedding", Gat="gat")
