"""Running the user's model: inputs, copies in float64, tracked parameters, and what is observed of its output."""
