"""Gaze estimation in the frames of any camera."""
