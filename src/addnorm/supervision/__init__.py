"""Supervision of a study: the plan and its cost, executors, workers, and external trackers."""
