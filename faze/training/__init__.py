"""Training, from pairs in memory to a checkpoint: data feed, augmentation, training loop and resumption."""
