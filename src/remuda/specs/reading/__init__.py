"""From the text of a document or script to values with their line and origin, and errors that name them."""
