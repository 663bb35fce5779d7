"""From raw frames to the pairs of images that the network sees."""
