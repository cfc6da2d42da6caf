"""Pages, reports, figures and tables of a study, organised by section. Never imports torch."""
