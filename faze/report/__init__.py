"""The page of an ablation: figures, words and one self-contained HTML file."""
