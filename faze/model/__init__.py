"""DT-ED, its losses, and implementations of its layers."""
