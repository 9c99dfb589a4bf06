"""The database: intents, tasks, allocations, events and the host's lease. SQLite by default, PostgreSQL by URL.

`engine.open_store` opens it, `database.Store` reads and writes it, `lease` says who may write, `ops` looks after it.
Nothing outside this room imports SQLAlchemy; rows are plain frozen dataclasses (`rows`), cheap to import.
"""
