"""Why a lease ended. Every lease has one of these numbers, for ever; none is used twice.

1xx the consumer, 2xx the owner, 3xx the platform, 4xx money, 5xx a fault.
"""

from __future__ import annotations

WORK_DONE = 101
CLOSED_BY_CONSUMER = 102
WORK_FAILED = 103
BID_WITHDRAWN = 104
RESOLD = 105
IDLE = 106
OVER_SHARE = 107
NOT_NEEDED = 108
RECLAIMED = 201
RECLAIMED_BEFORE_START = 202
MAINTENANCE = 203
WINDOW_OVER = 301
INTERRUPTED = 302
MARKET_AWAY = 303
FILES_LATE = 304
PAUSED = 305
MOVED = 306
TAKEN_BACK = 307
MONEY_SPENT = 401
AWAITS_MONEY = 402
MONEY_TAKEN = 403
BUDGET_REACHED = 404
NEVER_STARTED = 501
START_FAILED = 502
WORK_LOST = 503
GPU_OCCUPIED = 504
HOST_SILENT = 505
HOST_FALLS_SHORT = 506
GPU_LOST = 507
DRIVER_CHANGED = 508
GPU_FAILING = 509
HOST_RESTARTED = 510
MACHINE_GONE = 513

REASONS: dict[int, str] = {
    WORK_DONE: "The work finished by itself.",
    CLOSED_BY_CONSUMER: "The consumer ended the lease.",
    WORK_FAILED: "The work ended with an error of its own.",
    BID_WITHDRAWN: "The bid was withdrawn before the grant reached it.",
    RESOLD: "The consumer sold the rest of the lease.",
    IDLE: "The lease was idle for as long as its consumer's rule says, and a warning went before.",
    OVER_SHARE: "The work held more GPU memory than its share has, and was stopped.",
    NOT_NEEDED: "The work ended where it was before it moved here.",
    RECLAIMED: "The owner took the capacity back.",
    RECLAIMED_BEFORE_START: "The owner took the capacity back before the lease began.",
    MAINTENANCE: "The host went into maintenance, which had been announced.",
    WINDOW_OVER: "The window of the lease was over.",
    INTERRUPTED: "The market took the capacity for a firm bid, after the agreed notice.",
    MARKET_AWAY: "The market was away when the hosts should have been asked to start the work.",
    FILES_LATE: "The files or the image that the work needs did not come in time.",
    PAUSED: "The market paused the work for other work; the rest goes on when there is room.",
    MOVED: "The work moved home, to cheaper capacity, with what it had saved.",
    TAKEN_BACK: "The cloud took the rented machine back, after a warning.",
    MONEY_SPENT: "There was no money for the lease to go on.",
    AWAITS_MONEY: "There was no money for the next step: the work is paused until there is.",
    MONEY_TAKEN: "A bank took the account's money back: the work is paused until there is some.",
    BUDGET_REACHED: "A budget was reached: the work is paused until the budget has room again.",
    NEVER_STARTED: "The host did not start the work in time.",
    START_FAILED: "The host could not start the work.",
    WORK_LOST: "The host lost the work while it ran.",
    GPU_OCCUPIED: "The host refused the start: processes of others filled the GPU.",
    HOST_SILENT: "The host was not heard for too long.",
    HOST_FALLS_SHORT: "The host can no longer do what the work needs; it never began there.",
    GPU_LOST: "A GPU of the lease did not answer any more.",
    DRIVER_CHANGED: "The driver of the host was changed while the lease ran.",
    GPU_FAILING: "A GPU of the lease had an error after which it has to be reset.",
    HOST_RESTARTED: "The host was restarted, or lost power, while the work ran.",
    MACHINE_GONE: "The cloud has the rented machine no more: it ended without a warning.",
}

HARDWARE = frozenset({GPU_LOST, DRIVER_CHANGED, GPU_FAILING, HOST_RESTARTED, MACHINE_GONE})
"""A GPU or a host under the work failed: one host of the lease is named for it."""

FAULTS = HARDWARE | {
    NEVER_STARTED,
    START_FAILED,
    WORK_LOST,
    GPU_OCCUPIED,
    HOST_SILENT,
    HOST_FALLS_SHORT,
}
"""A fault ended the lease: it is shown as failed, and costs what was proved of its use: nothing
where the work never came up."""

CUT_SHORT = FAULTS | {
    RECLAIMED,
    RECLAIMED_BEFORE_START,
    MAINTENANCE,
    INTERRUPTED,
    MARKET_AWAY,
    PAUSED,
    MOVED,
    TAKEN_BACK,
    AWAITS_MONEY,
    MONEY_TAKEN,
    BUDGET_REACHED,
}
"""Neither the consumer nor the clock ended the lease: what is left of the work may be resumed."""

PAUSES = frozenset({PAUSED, BUDGET_REACHED})
"""Work that may be paused was: for other work, or for a budget."""

FUNDS_TAKEN, FUNDS_BACK = "funds-taken-back", "funds-there-again"
"""Why work is to be paused before its time, and that it goes on after all."""

WITHOUT_MONEY = frozenset({"funds-insufficient", "budget-spent", "budget-used-up"})
"""Why an extension is refused where its consumer could not pay for it."""
