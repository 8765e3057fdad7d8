"""The book of record over HTTP: who takes part, tokens, money."""
