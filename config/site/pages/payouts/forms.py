"""Forms of payouts: a bank account, how often to be paid, what the bank said."""

from __future__ import annotations

from django import forms

from ledger.domain.bank_details import NAME_LENGTH_MAX
from ledger.domain.holds import TEXT_LENGTH_MAX

SCHEDULES = (
    ("weekly", "Every week"),
    ("monthly", "Every month"),
    ("manual", "When finance says so"),
)
FORMATS = (("pain.001", "pain.001 (XML)"), ("csv", "CSV"))


class DetailsForm(forms.Form):
    """A bank account: an IBAN, or an account number with its routing number."""

    name = forms.CharField(label="Account holder", max_length=NAME_LENGTH_MAX)
    iban = forms.CharField(label="IBAN", max_length=42, required=False)
    bic = forms.CharField(label="BIC", max_length=11, required=False)
    account = forms.CharField(label="Account number", max_length=20, required=False)
    routing = forms.CharField(label="Routing number", max_length=12, required=False)


class ScheduleForm(forms.Form):
    """How often, and from how much on."""

    schedule = forms.ChoiceField(label="How often", choices=SCHEDULES)
    minimum = forms.CharField(label="Minimum", max_length=20, required=False)


class ReasonForm(forms.Form):
    """Why a payout is cancelled, or what the bank said when it came back."""

    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)


class PaidForm(forms.Form):
    """What the bank's statement says."""

    reference = forms.CharField(label="Bank's reference", max_length=TEXT_LENGTH_MAX)
    paid_on = forms.DateField(
        label="Day on the statement",
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
    )


class FileForm(forms.Form):
    """In which form a file is written, and of which currency's payouts."""

    format = forms.ChoiceField(label="Format", choices=FORMATS)
    currency = forms.CharField(max_length=3, widget=forms.HiddenInput)


class CountryForm(forms.Form):
    """In which country an owner is, where that is not the platform's."""

    country = forms.CharField(label="Country, in two letters", max_length=2, required=False)


class ChannelForm(forms.Form):
    """How payouts go out."""

    channel = forms.ChoiceField(choices=(("bank-file", "bank account"), ("stripe", "Stripe")))


class ReversalForm(forms.Form):
    """What of a transfer is to come back, and why."""

    amount = forms.CharField(label="Amount", max_length=24)
    reason = forms.CharField(label="Reason", max_length=TEXT_LENGTH_MAX)


class BankNoticeForm(forms.Form):
    """What the bank sent: a camt.054."""

    file = forms.FileField(label="File from the bank (camt.054)")
