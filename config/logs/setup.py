"""Structured logs: one JSON object a line, to standard error.

Django's settings name `configure`, so that every process of the product has these logs by whichever
command it was started, before anything else runs.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TextIO

import structlog

from config.env import Env, secrets_of
from config.logs.lines import TEXT_MAX, Pace, PaceFilter, Redaction, plain_tracebacks
from ledger.domain.redaction import spellings


def configure(options: Mapping[str, Any]) -> None:
    """Send our own and the libraries' records through one renderer.

    options: `env`, whose secrets are never written; `secret_key`, which is not always of it.
    """
    env: Env = options["env"]
    level = logging.DEBUG if env.debug else logging.INFO
    redaction = redaction_of(env, options["secret_key"])
    pace = Pace()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        plain_tracebacks,
    ]
    structlog.configure(
        processors=[pace, *shared, redaction, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: _Lines(),
        cache_logger_on_first_use=True,
    )
    handler = _Handler()
    handler.addFilter(PaceFilter(pace))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redaction,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    _take_over(handler)
    _tell_of_what_nobody_catches(redaction)


def redaction_of(env: Env, secret_key: str) -> Redaction:
    """Return what hides this installation's own secrets, and everything of their shapes."""
    return Redaction(spellings([*secrets_of(env), secret_key]))


class _Lines:
    """Writes to the standard error of the moment. Nobody fails because nobody reads."""

    def msg(self, message: str) -> None:
        """Write one line."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(message + "\n")
            sys.stderr.flush()

    debug = info = warning = error = critical = fatal = exception = log = msg


class _Handler(logging.StreamHandler[TextIO]):
    """As `_Lines`, for the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        try:
            line = self.format(record)
        except Exception as failure:  # a record that cannot be told must not end who wrote it
            line = json.dumps({"event": "log.failed", "logger": record.name, "said": str(failure)})
        _Lines().msg(line)


def _take_over(handler: logging.Handler) -> None:
    """Let no logger write by a way of its own: not Django's mails, not uvicorn's own lines."""
    for logger in list(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger) and logger.handlers:
            logger.handlers[:] = []
            logger.propagate = True
    logging.getLogger("uvicorn.access").disabled = True  # it writes whole addresses
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.captureWarnings(True)


def _tell_of_what_nobody_catches(redaction: Redaction) -> None:
    """Let what ends a process or a thread be told as everything else is."""
    log = structlog.get_logger()

    def ended(
        kind: type[BaseException], failure: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, failure, trace)
        elif sys.stderr is not None and sys.stderr.isatty():
            lines = "".join(traceback.format_exception(kind, failure, trace))
            _Lines().msg(redaction.text(lines[-TEXT_MAX:]))
        else:
            log.error("process.failed", exc_info=failure)

    def thread_ended(told: threading.ExceptHookArgs) -> None:
        name = told.thread.name if told.thread else ""
        if not issubclass(told.exc_type, SystemExit):
            log.error("thread.failed", thread=name, exc_info=told.exc_value)

    def not_raised(told: Any) -> None:
        log.error("failure.not-raised", said=told.err_msg or "", exc_info=told.exc_value)

    sys.excepthook, threading.excepthook, sys.unraisablehook = ended, thread_ended, not_raised
