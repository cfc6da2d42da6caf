"""Its being here puts this folder on the path, where `studies` is."""
