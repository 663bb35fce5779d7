"""Gaze estimation in frames from any camera."""
