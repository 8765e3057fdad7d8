"""EC2 on loopback: moto over HTTP, with what moto lacks of the real one."""
