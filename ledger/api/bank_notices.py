"""What banks tell in files, over HTTP."""

from __future__ import annotations

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from ledger import bank_notices, camt054, paying
from ledger.api import payout_shapes as shapes
from ledger.rest import Endpoint


class BankNotices(Endpoint):
    """What a bank booked."""

    scopes = {"POST": "payouts:write"}
    reads = ("ledger.money",)

    @extend_schema(request=shapes.AskBankNotice, responses=shapes.BankNoticeHeard)
    def post(self, request: Request) -> Response:
        """Take a camt.054: payouts that the bank paid or sent back are marked; each line says."""
        user_id = paying.need_to_pay(self.actor)
        lines = camt054.read(self.body(shapes.AskBankNotice)["content"])
        store = self.store()
        heard = bank_notices.hear(store, lines, user_id=user_id, by=self.meta(), now=timezone.now())
        shown = shapes.HeardShape(heard, many=True).data
        return Response({"data": shown, "position": store.head()})
