"""Files of FedSageDyn: the generator of neighbours."""
