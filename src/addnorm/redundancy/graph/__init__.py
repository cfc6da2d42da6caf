"""The static method: shifts propagated through the exported graph, and the constraints on them."""
