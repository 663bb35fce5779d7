"""The parameters, and how they get from config.yaml to a stage. Uses only pydantic and yaml."""
