"""From raw frames to the images of pairs that the network sees."""
