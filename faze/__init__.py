"""A workflow for few-shot adaptive gaze estimation (FAZE) and its mixed-precision ablation."""
