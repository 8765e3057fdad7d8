"""The entries of the book: open bids, listed offers, the time of GPUs, and what fits what."""
