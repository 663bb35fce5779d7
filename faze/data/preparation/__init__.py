"""The preparation of eye strips from raw camera frames, part by part, so that a killed run can resume."""
