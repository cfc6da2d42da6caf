"""Training of one run: the loop, checkpoints, recorded scalars, and the worker process."""
