"""What FedSageDyn adds to the methods on one shared graph: generated neighbours."""
