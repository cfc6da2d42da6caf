"""The numerical method: the null space of the Jacobian of all outputs with respect to all parameters."""
