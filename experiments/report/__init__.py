"""Reports: one self-contained HTML file of an experiment, for readers who never saw the project."""
