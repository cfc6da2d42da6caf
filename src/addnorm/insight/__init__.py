"""What a trained model shows, read from a run's files."""
