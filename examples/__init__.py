"""Case studies for the ablation of any network, and scripts that describe data sets in manifests."""
