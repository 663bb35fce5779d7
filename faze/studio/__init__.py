"""A local page to turn the codes of a strip by hand, decoded in the browser."""
