"""Gaze in the frames of any camera."""
