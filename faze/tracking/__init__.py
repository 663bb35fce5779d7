"""MLflow as a mirror of the run logs: they stay the truth, and the mirror can be made again from them at any time.

run_record     one run as its files tell it: params, tags, metrics, description, artifacts
store          the MLflow store: where it lies, its first opening, its experiment, its failures
mirror         records -> flat MLflow runs; doing it twice changes nothing
run_contents   what a run holds already, and the requests that bring the rest
artifacts      a run's files
logged_models  a run's network, found by its errors
follower       runs under way
view           the chart view: its address, what it shows, the server behind it
"""
