"""``acclimate compare``: arms side by side on real engines, in alternation on the same prompts."""
