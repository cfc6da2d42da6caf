"""The order in which pages list the states of runs."""

from addnorm.store import State

ORDER: tuple[State, ...] = ("finished", "running", "queued", "interrupted", "blocked", "diverged", "failed")
WORST_FIRST: tuple[State, ...] = ("running", "failed", "diverged", "blocked", "interrupted", "queued", "finished")
"""The first state that any run of a model has is shown as the model's: running, or else the worst."""
