"""Keys of the installation, and sign-in by an issuer."""
