"""A git repository served over HTTP on loopback by git's own server, for tests."""
