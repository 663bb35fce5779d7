"""A local page on which a user changes the codes of a strip, and the browser decodes them."""
