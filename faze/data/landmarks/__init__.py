"""Estimate head poses in frames from any camera, using landmarks that MediaPipe detects."""

NO_FACE = "no face found"
