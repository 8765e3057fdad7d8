"""What the owner of a host may do to it at the host itself, with or without the market."""
