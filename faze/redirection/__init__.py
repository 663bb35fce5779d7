"""Redirect strips to another gaze and head pose by rotating their codes.

estimator  a separate network that estimates gaze and head pose of a strip, and its training
redirect   redirected strips, their controls and their measurements
walk       latent walks: a strip decoded along a range of angles
"""
