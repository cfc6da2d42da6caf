"""Agreement of two models: their parameters up to the null space, their outputs, and the order of their units."""
