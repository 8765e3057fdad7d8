"""Between owners' payouts and Stripe Connect: accounts there, transfers, what Stripe says of both.

`accounts` sets them up; `transfers` carries out what was approved; `notices` takes word of it in;
`settling` puts that on the books; `comparing` looks if both sides agree; `telling` tells people.
"""
