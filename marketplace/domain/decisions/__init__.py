"""What the engine decides on a fact and in a round: where replays and the lab enter, too."""
