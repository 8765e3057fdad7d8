"""Between wallets and the payment service: what is asked of it, what it says, and if both agree.

`outbox` carries out what was recorded as asked; `inbox` takes its notices in and looks each up;
`automatic` lets wallets top themselves up; `reconciling` compares the journal with its account.
"""
