"""What is shown of finished work: tables, plots, one-file pages. Never imports torch."""
