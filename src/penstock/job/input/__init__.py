"""The input of a stage: source ranges, or entries of channel logs up to the next barrier."""
