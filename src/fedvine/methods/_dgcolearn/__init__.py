"""Files of the methods on one shared graph: placement, a client's part, exchange."""
