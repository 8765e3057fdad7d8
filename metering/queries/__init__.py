"""What can be asked about use."""
