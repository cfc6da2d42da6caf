"""Other readings of a difference: its worth in compute or steps, scores of single items, and probabilities beside verdicts."""
