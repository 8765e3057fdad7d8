"""What a bidder may ask, the life of a bid, and which of several markets it goes to."""
