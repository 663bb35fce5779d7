"""The data pipeline: from raw frames to the pairs of images that the network sees."""
