"""MLflow as a mirror of the run logs. The logs are authoritative; the mirror can be rebuilt from them at any time.

run_record a run as described by its files: parameters, tags, metrics, description, artifacts
store       the MLflow store: its address, first opening, experiment, failures, and chart view
mirror      run records -> flat MLflow runs with their logged models, at the end or while they train
"""
