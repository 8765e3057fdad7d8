"""S3 on loopback: moto over HTTP, with the checks of presigned requests that moto does not make."""
