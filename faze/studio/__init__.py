"""A local page on which a user changes the codes of a strip, which the browser decodes."""
