"""Evaluation: from the outputs of many runs to tables, statistics and verdicts."""

UNADAPTED = "unadapted"  # value of the column `learner` at k = 0, where all learners use the trained gaze head
