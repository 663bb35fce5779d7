"""The parameters, and their way from config.yaml to a stage. Standard library and yaml."""
