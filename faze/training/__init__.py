"""From pairs in memory to a checkpoint: feed, augmentation, loop, resume."""
