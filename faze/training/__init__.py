"""Training, from pairs in memory to a checkpoint: feed, augmentation, loop and resuming."""
