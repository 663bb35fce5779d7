"""One thin module per rule: parse, call, write. `python -m faze.stages.<stage>` and `faze <stage>` are the same."""
