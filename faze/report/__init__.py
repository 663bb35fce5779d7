"""The report page of an ablation: figures and text in one self-contained HTML file."""
