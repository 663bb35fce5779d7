"""MLflow as a mirror of the run logs: they stay the truth, and the mirror can be made again from them at any time.

record   one run as its files tell it: params, tags, metrics, description, artifacts
store    the MLflow store: where it lies, its first opening, its experiment
mirror   a record -> one flat MLflow run; doing it twice changes nothing
view     the chart view: its address, what it shows, the server behind it
"""
