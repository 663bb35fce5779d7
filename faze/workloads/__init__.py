"""Workloads: trainings of networks other than DT-ED, and the interface for anyone's own."""
