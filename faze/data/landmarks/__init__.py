"""Estimate head poses from landmarks that MediaPipe detects, for frames of any camera."""

NO_FACE = "no face found"
