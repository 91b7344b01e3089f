"""From notebooks to book: execute, collect the verdicts, stage, render. Nothing scientific imports this wing."""
