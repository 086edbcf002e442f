"""What another policy would have done on recorded traffic."""
