"""The contract of a method, and the calls to its clients; imports no other room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedvine.core.lazy import lazy

if TYPE_CHECKING:
    from fedvine.core.clients import Clients
    from fedvine.core.errors import FedvineError, MethodError
    from fedvine.core.expect import Array, Flag, Maybe, Named, Number, Several, Tensor, Text
    from fedvine.core.method import At, Field, Method, Server, on_client
    from fedvine.core.replies import Query, Replies
    from fedvine.core.rng import hashed_uniform, key, torch_rng
    from fedvine.core.state import Client, World

__all__ = ["Array", "At", "Client", "Clients", "FedvineError", "Field", "Flag", "Maybe", "Method",
           "MethodError", "Named", "Number", "Query", "Replies", "Server", "Several", "Tensor",
           "Text", "World", "hashed_uniform", "key", "on_client", "torch_rng"]
__getattr__, __dir__ = lazy(__name__, Array="expect", At="method", Client="state",
                            Clients="clients", FedvineError="errors", Field="method", Flag="expect",
                            Maybe="expect", Method="method", MethodError="errors", Named="expect",
                            Number="expect", Query="replies", Replies="replies", Server="method",
                            Several="expect", Tensor="expect", Text="expect", World="state",
                            hashed_uniform="rng", key="rng", on_client="method", torch_rng="rng")
