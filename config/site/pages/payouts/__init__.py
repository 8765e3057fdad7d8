"""What owners earned, and how they are paid."""
