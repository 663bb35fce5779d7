"""The parameters: types, validation, and the values that each stage receives. Requires only pydantic and yaml."""
