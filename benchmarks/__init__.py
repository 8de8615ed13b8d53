"""What is measured, against whom, and where the floor is: ``scripts/bench NAME``."""
