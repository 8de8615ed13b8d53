"""Missing neighbours of FedSage+: the generator, and how it learns."""
