"""A web process around Django: connections, the short way of bids, sockets, what goes wrong."""
