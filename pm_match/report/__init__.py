"""A matching as a page."""
