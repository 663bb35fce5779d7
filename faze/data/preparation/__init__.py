"""From raw camera frames to eye strips, part by part, so that a killed run can resume."""
