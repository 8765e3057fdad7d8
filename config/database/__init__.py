"""PostgreSQL: a server that `DATABASE_URL` names, or an embedded one started when first needed."""
