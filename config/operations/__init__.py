"""What operators and their machines are told: health, measures, and what `doctor` looks at."""
