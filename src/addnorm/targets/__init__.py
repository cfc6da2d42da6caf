"""What a command can be pointed at: a function, a run, a Transformers class, a folder with a checkpoint."""
