// node fill.js DATABASE: creates a database with the animals on stdin (one JSON object per line) and the key in BENCH_KEY.
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import Database from 'better-sqlite3'

const [path] = process.argv.slice(2)
const key = process.env.BENCH_KEY
if (!path || !key) {
  console.error('usage: BENCH_KEY=KEY node fill.js DATABASE < ANIMALS')
  process.exit(2)
}

const db = new Database(path)
db.pragma('journal_mode = WAL')
db.exec('BEGIN')
db.exec(readFileSync(new URL('../schema.sql', import.meta.url), 'utf8'))
db.prepare('INSERT INTO accounts (id) VALUES (1)').run()
db.prepare('INSERT INTO api_keys (hash, account_id) VALUES (?, 1)').run(createHash('sha256').update(key).digest())
const insert = db.prepare('INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)')
for await (const line of createInterface({ input: process.stdin })) {
  const { name, categoryId, status } = JSON.parse(line)
  insert.run(name, categoryId, status)
}
db.exec('COMMIT')
// Closing the last connection checkpoints the WAL.
db.close()
