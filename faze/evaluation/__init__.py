"""From the files of many runs to tables: what was measured, what it shows, and in which words."""

UNADAPTED = "unadapted"  # stands in the column `learner` where k = 0: the trained gaze head, the same for every learner
