"""MLflow as a mirror of the run logs. The logs remain the truth; the mirror can be rebuilt from them at any time.

run_record  one run as its files describe it: parameters, tags, metrics, description, artifacts
store       the MLflow store: its address, first opening, experiment, failures, and chart view
mirror      run records -> flat MLflow runs with their logged models, at the end or while they train
"""
