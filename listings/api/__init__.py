"""The API of supply: hosts and offers of an owner, and the listings that everybody sees."""
