"""What policies would have done, before they are set: on the book, and on the past."""
