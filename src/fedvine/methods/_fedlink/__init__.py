"""Files of FedLink and its rivals: edge buffers, batches, arrivals, row ownership."""
