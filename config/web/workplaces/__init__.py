"""Ports of leased work in a browser, each on an origin of its own that is never the market's.

`origin` says which request is for which work, and whose; `stream` is a connection into it; `http`
and `sockets` carry requests and websockets over one; `workplaces` puts them together.
"""
