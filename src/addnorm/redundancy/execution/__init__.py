"""Execution of the user's model: inputs, copies, float64, tracked parameters, and the observed output."""
