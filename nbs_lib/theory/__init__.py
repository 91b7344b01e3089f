"""What the papers prove, in computable form: packings, optimal margins, losses minimised over free features."""
