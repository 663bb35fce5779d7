"""DT-ED, its losses, and the ways to compute its layers."""
