"""What people see: pages by topic over the parts they are made of, the manual, and what is live.

It knows nothing of how the server is put together (`config.wiring`) or of the demo.
"""
