"""Study definitions: dataclasses, YAML and Python files, variants, plug-ins, and the runs that they expand to."""
