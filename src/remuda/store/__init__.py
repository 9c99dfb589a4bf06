"""The database: tables, migrations, and the one writer's lease."""
