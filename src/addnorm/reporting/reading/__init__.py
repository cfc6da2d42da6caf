"""Reading files of a study folder that may be missing, damaged or from elsewhere."""
