"""The closed form of power_plus: sums over nodes, regression, and what it chooses for itself."""
