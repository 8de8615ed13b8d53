"""The parts of fedlink_plus: counts, features of pairs, rows that travel, and Newton's method."""
