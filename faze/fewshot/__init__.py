"""Few-shot adaptation of the gaze head, vectorised over tasks, people, repeats and k."""
