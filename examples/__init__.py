"""Case studies for the ablation of any network, and converters of data sets to a manifest."""
