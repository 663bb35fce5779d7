"""Training, from pairs in memory to a checkpoint: feed, augmentation, training loop and resumption."""
