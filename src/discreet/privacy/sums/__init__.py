"""How sums of people are released over time."""
