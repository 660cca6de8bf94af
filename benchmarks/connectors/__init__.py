"""What Kafka and PostgreSQL at the ends of a job cost, and how soon results are seen there."""
