//! Connections to the database.

use std::path::{Path, absolute};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::Result;

/// Opens a file. Without the flag for URIs, some builds of SQLite accept them, too, but an absolute path is never one.
pub fn open_file(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    if flags.contains(OpenFlags::SQLITE_OPEN_URI) {
        return Connection::open_with_flags(file, flags);
    }
    Connection::open_with_flags(absolute(file).as_deref().unwrap_or(file), flags)
}

/// Opens a connection with the settings that all connections share.
pub fn connect(file: &Path, flags: OpenFlags) -> Result<Connection> {
    let conn = open_file(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // Otherwise an SQLite built with STAT4 prepares a statement again when a parameter is bound.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // SQLite would remove the log when the last connection closes: see `disk/generation.rs`.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    conn.pragma_update(None, "foreign_keys", true)?;
    // Otherwise SQLite would sort in a temporary file, and a container may have no place for one.
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}
