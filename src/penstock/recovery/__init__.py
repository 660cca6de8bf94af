"""What happens when something fails: who drives a job, when it starts again, and from where."""
