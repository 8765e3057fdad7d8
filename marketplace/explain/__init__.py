"""Why something stands as it does, and what would change it: run on the book, for people."""
