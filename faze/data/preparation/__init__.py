"""From raw camera frames to eye strips, shard by shard, so that a killed run can resume."""
