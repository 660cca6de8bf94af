"""The operator chain of a stage: its functions, their contexts, and the steps a record passes."""
