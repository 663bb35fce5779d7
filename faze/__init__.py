"""faze: few-shot adaptive gaze estimation and its mixed-precision ablation, as one workflow."""
