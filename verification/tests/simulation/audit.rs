//! Compares the final database and the web server's messages with what clients were told.

use std::collections::BTreeMap;

use petstore::domain::MessageId;
use petstore::domain::order::OrderStatus;
use rusqlite::{Connection, OpenFlags, Row};

use crate::disk;
use crate::ledger::{Checked, Ledger, Tag, can_follow};
use crate::machine::FOREIGN;
use crate::world::World;

/// Animals whose status is not what their order says.
const WRONG_STATUS: &str = "SELECT count(*) FROM pets p LEFT JOIN orders o ON o.pet_id = p.id AND o.status <> 3
    WHERE p.status <> CASE o.status WHEN 0 THEN 1 WHEN 1 THEN 1 WHEN 2 THEN 2 ELSE 0 END";

pub fn audit(world: &World) -> Checked {
    disk::with(|disk| {
        disk.lives.revive(FOREIGN);
        disk.running = FOREIGN;
    });
    let file = world.folder.join("petstore.db");
    let conn = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX);
    let conn = conn.map_err(|error| error.to_string())?;
    let ledger = world.ledger.borrow();
    let integrity: String = rows(&conn, "PRAGMA integrity_check", |row| row.get(0))?.swap_remove(0);
    expect(integrity == "ok", || integrity.clone())?;
    animals(&conn, &ledger)?;
    orders(&conn, &ledger)?;
    messages(&conn, &ledger, &world.web_server.ids())?;
    revocations(&conn, &ledger)
}

fn animals(conn: &Connection, ledger: &Ledger) -> Checked {
    let found = rows(conn, "SELECT id, CAST(name AS INTEGER) FROM pets", |row| Ok((row.get(0)?, row.get(1)?)))?;
    let by_id: BTreeMap<i64, Tag> = found.iter().copied().collect();
    let mut requests = BTreeMap::new();
    for (id, tag) in found {
        if let Some(other) = requests.insert(tag, id) {
            return Err(format!("request {tag} created animals {other} and {id}"));
        }
    }
    for (id, tag) in &ledger.pets {
        expect(by_id.get(id) == Some(tag), || format!("animal {id} of request {tag} is lost: {:?}", by_id.get(id)))?;
    }
    let wrong = rows(conn, WRONG_STATUS, |row| row.get::<_, i64>(0))?[0];
    expect(wrong == 0, || format!("{wrong} animals have not the status of their order"))
}

fn orders(conn: &Connection, ledger: &Ledger) -> Checked {
    let sql = "SELECT id, account_id, pet_id, created_at, status FROM orders";
    let read = |row: &Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
    let found: BTreeMap<i64, (i64, i64, Tag, i64)> = rows(conn, sql, read)?.into_iter().collect();
    let mut requests = BTreeMap::new();
    for (id, (.., tag, _)) in &found {
        if let Some(other) = requests.insert(tag, id) {
            return Err(format!("request {tag} placed orders {other} and {id}"));
        }
    }
    for (id, known) in &ledger.orders {
        let Some((account, pet, tag, status)) = found.get(id) else { return Err(format!("order {id} is lost")) };
        let is_same = (*account, *pet, *tag) == (known.account.0, known.pet, known.tag);
        expect(is_same, || format!("order {id} is another one"))?;
        let status = OrderStatus::from_code(i16::try_from(*status).expect("a code")).expect("a status");
        expect(can_follow(status, known.status), || format!("order {id} was {:?}, is {status:?}", known.status))?;
    }
    Ok(())
}

fn messages(conn: &Connection, ledger: &Ledger, received: &BTreeMap<String, Vec<MessageId>>) -> Checked {
    for (tag, id) in &ledger.messages {
        let ids = received.get(&tag.to_string());
        expect(ids.is_some_and(|ids| ids.contains(id)), || format!("message {tag} has not arrived: {ids:?}"))?;
    }
    for (text, ids) in received {
        expect(ids.len() == 1, || format!("request {text} sent {} messages", ids.len()))?;
    }
    let sql = "SELECT message FROM messages WHERE sent_at IS NOT NULL";
    for text in rows(conn, sql, |row| row.get::<_, String>(0))? {
        expect(received.contains_key(&text), || format!("message {text} is marked as sent and has not arrived"))?;
    }
    Ok(())
}

fn revocations(conn: &Connection, ledger: &Ledger) -> Checked {
    let valid = rows(conn, "SELECT id FROM api_keys WHERE revoked_at IS NULL", |row| row.get::<_, i64>(0))?;
    for key in &ledger.keys {
        let is_valid = valid.contains(&key.id);
        expect(key.is_revoking || is_valid, || format!("key {} is lost", key.id))?;
        expect(key.revoked.is_none() || !is_valid, || format!("the revocation of key {} is lost", key.id))?;
    }
    Ok(())
}

fn rows<T>(conn: &Connection, sql: &str, read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>) -> Result<Vec<T>, String> {
    let read_all = || conn.prepare(sql)?.query_map([], read)?.collect::<rusqlite::Result<_>>();
    read_all().map_err(|error| format!("{sql}: {error}"))
}

fn expect(is_true: bool, violation: impl FnOnce() -> String) -> Checked {
    if is_true { Ok(()) } else { Err(violation()) }
}
