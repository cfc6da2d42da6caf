"""Questions about runs from anywhere: how noisy one is, and which of many proposals to keep."""
