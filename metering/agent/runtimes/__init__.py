"""How leased work is started, told, stopped and found again."""
