"""Ways out for notices. `port` says what a sender is; its siblings are the senders."""
