"""From raw camera frames to eye strips, block by block, so that a killed preprocessing goes on where it stood."""
