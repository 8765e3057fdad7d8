"""Volumes: files of an organisation that outlive the leases which read and write them."""
