"""The API of use: what agents call, and what consumers and owners read."""
