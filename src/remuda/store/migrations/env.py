"""Run migrations on the connection that `remuda.store.migrate` hands over, inside its transaction."""

from __future__ import annotations

from alembic import context

from remuda.store.tables import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
context.run_migrations()
