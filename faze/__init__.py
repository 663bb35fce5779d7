"""Few-shot adaptive gaze estimation (FAZE) and its mixed-precision ablation as one workflow."""
