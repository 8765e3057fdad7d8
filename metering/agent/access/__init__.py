"""The way into leased work: a tunnel that the agent opens outwards, and the door it leads to."""
