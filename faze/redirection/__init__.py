"""Redirect strips to another gaze and head pose by rotating their codes.

pairs       which strips are redirected to which
estimator a separate network that estimates gaze and head pose of a strip, and its training
evaluator   the redirected strips and their measurements
walk        latent walks: a strip decoded along a range of angles
"""
