"""A local page on which the codes of a strip move under a reader's hand, decoded in the browser."""
