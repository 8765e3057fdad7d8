"""What bidders bring to a lease and get back from it: folders, by the hashes of what is in them."""
