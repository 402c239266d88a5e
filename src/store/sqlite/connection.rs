//! Connections to the database.

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::store::Result;

/// Opens a connection with the settings that all connections share.
pub fn connect(file: &Path, flags: OpenFlags) -> Result<Connection> {
    let conn = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Otherwise an SQLite built with STAT4 prepares a statement again when a parameter is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}
