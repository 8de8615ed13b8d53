"""Files of FedLink and its rivals: edges, rows that travel, inputs."""
