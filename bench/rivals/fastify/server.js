// The store's API with Fastify and better-sqlite3: DATABASE=PATH PORT=0 node server.js
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import Ajv from 'ajv'
import Database from 'better-sqlite3'
import Fastify from 'fastify'

const KEY_TTL_MS = 1000 // Time for which a revoked key may still be accepted.
const STATUSES = ['available', 'pending', 'sold']

// --- The database -----------------------------------------------------------------------------------------------

const db = new Database(process.env.DATABASE, { fileMustExist: true })
db.pragma('journal_mode = WAL')
db.pragma('synchronous = FULL') // The default of better-sqlite3 for WAL is NORMAL, which can lose acknowledged writes.

const COLUMNS = 'id, name, category_id AS categoryId, status'
const sql = {
  account: db.prepare('SELECT account_id FROM api_keys WHERE hash = ?').pluck(),
  list: db.prepare(`SELECT ${COLUMNS} FROM pets WHERE id > ? ORDER BY id LIMIT ?`),
  listByStatus: db.prepare(`SELECT ${COLUMNS} FROM pets WHERE status = ? AND id > ? ORDER BY id LIMIT ?`),
  get: db.prepare(`SELECT ${COLUMNS} FROM pets WHERE id = ?`),
  create: db.prepare('INSERT INTO pets (name, category_id, status) VALUES (?, ?, ?)'),
  send: db.prepare('INSERT INTO messages (id, account_id, message, created_at) VALUES (?, ?, ?, ?)')
}

// --- Errors -----------------------------------------------------------------------------------------------------

class ApiError extends Error {
  constructor (status, code, message, headers = {}) {
    super(message)
    Object.assign(this, { status, code, headers })
  }
}

/** An ApiError for whatever was thrown: by a handler, by validation, or by Fastify while it read the body. */
function toApiError (error) {
  if (error instanceof ApiError) return error
  if (error.validation) return fromValidation(error.validation[0], error.validationContext)
  switch (error.statusCode) {
    case 400: return new ApiError(400, 'invalid_json', 'The body is not JSON.')
    case 413: return new ApiError(413, 'payload_too_large', 'The body is larger than 64 KiB.')
    case 415: return new ApiError(415, 'unsupported_media_type', '`Content-Type` must be `application/json`.')
  }
  console.error(error)
  return new ApiError(500, 'internal_error', 'Something went wrong on our side.')
}

function fromValidation ({ keyword, instancePath, message, params }, context) {
  if (keyword === 'required') {
    return new ApiError(400, 'missing_field', `The field \`${params.missingProperty}\` is required.`)
  }
  if (keyword === 'additionalProperties') {
    return new ApiError(400, 'unknown_parameter', `There is no query parameter \`${params.additionalProperty}\`.`)
  }
  if (context === 'body' && instancePath === '') {
    return new ApiError(400, 'invalid_json', 'The body is not a JSON object.')
  }
  return new ApiError(400, 'invalid_value', `\`${instancePath.slice(1)}\` ${message}.`)
}

// --- Credentials ------------------------------------------------------------------------------------------------

const accounts = new Map() // Hash of a cached key -> its account and expiry.

function accountOf (key) {
  const hash = createHash('sha256').update(key).digest()
  const name = hash.toString('latin1')
  const known = accounts.get(name)
  if (known !== undefined && Date.now() < known.until) return known.account
  const account = sql.account.get(hash)
  if (account === undefined) accounts.delete(name)
  else accounts.set(name, { account, until: Date.now() + KEY_TTL_MS })
  return account
}

function authenticate (request, reply, done) {
  const bearer = /^Bearer(?:$| +(.*)$)/i.exec(request.headers.authorization ?? '')
  if (bearer === null) {
    const challenge = { 'www-authenticate': 'Bearer realm="petstore"' }
    return done(new ApiError(401, 'missing_api_key', 'Send a key as `Authorization: Bearer <API_KEY>`.', challenge))
  }
  request.account = accountOf(bearer[1] ?? '')
  if (request.account === undefined) {
    const challenge = { 'www-authenticate': 'Bearer realm="petstore", error="invalid_token"' }
    return done(new ApiError(401, 'invalid_api_key', 'The API key is not valid here.', challenge))
  }
  done()
}

// --- The application --------------------------------------------------------------------------------------------

const app = Fastify({
  bodyLimit: 64 * 1024,
  requestIdHeader: false, // Otherwise Fastify uses the client's id without validation.
  genReqId: ({ headers: { 'x-request-id': given } }) => /^[!-~]{1,128}$/.test(given ?? '') ? given : randomUUID()
})
// Query values are converted from text. In a body, "3" is not a number.
const validators = {
  querystring: new Ajv({ coerceTypes: true, useDefaults: true }),
  body: new Ajv({ useDefaults: true })
}
app.setValidatorCompiler(({ schema, httpPart }) => validators[httpPart].compile(schema))
app.decorateRequest('account', null)
app.addHook('onRequest', (request, reply, done) => {
  reply.header('x-request-id', request.id)
  done()
})
app.setErrorHandler((error, request, reply) => {
  const { status, code, message, headers } = toApiError(error)
  return reply.code(status).headers(headers).send({ code, message, status })
})
app.setNotFoundHandler(() => { throw new ApiError(404, 'not_found', 'This path does not exist.') })

// --- The operations ---------------------------------------------------------------------------------------------

const integer = { type: 'integer' }
const string = { type: 'string' }
const status = { type: 'string', enum: STATUSES }
// Not only white space, no control characters. A message may have tabs and line breaks.
const name = {
  type: 'string',
  minLength: 1,
  maxLength: 255,
  pattern: '^[^\\p{Cc}\\p{Cs}]*[^\\s\\p{Cc}\\p{Cs}][^\\p{Cc}\\p{Cs}]*$'
}
const text = {
  type: 'string',
  minLength: 1,
  maxLength: 10000,
  pattern: '^(?:[^\\p{Cc}\\p{Cs}]|[\\t\\n\\r])*[^\\s\\p{Cc}\\p{Cs}](?:[^\\p{Cc}\\p{Cs}]|[\\t\\n\\r])*$'
}
const categoryId = { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }
const pet = { type: 'object', properties: { id: integer, name: string, categoryId: integer, status: string } }
const message = { type: 'object', properties: { id: string, message: string, status: string, createdAt: string } }

let base // Base of links. Set when the port is known.

app.get('/v1/pets', {
  onRequest: authenticate,
  schema: {
    querystring: {
      type: 'object',
      properties: { limit: { type: 'integer', minimum: 1, maximum: 100, default: 20 }, status, after: integer },
      additionalProperties: false
    },
    response: { 200: { type: 'array', items: pet } }
  }
}, (request, reply) => {
  const { limit, status, after = 0 } = request.query
  // One more than requested, to know whether there is a next page.
  const pets = status === undefined ? sql.list.all(after, limit + 1) : sql.listByStatus.all(status, after, limit + 1)
  if (pets.length > limit) {
    pets.pop()
    const filter = status === undefined ? '' : `&status=${status}`
    reply.header('link', `<${base}/pets?limit=${limit}${filter}&after=${pets[limit - 1].id}>; rel="next"`)
  }
  reply.send(pets)
})

app.post('/v1/pets', {
  onRequest: authenticate,
  schema: {
    body: {
      type: 'object',
      required: ['name', 'categoryId'],
      properties: { name, categoryId, status: { ...status, default: 'available' } }
    },
    response: { 201: pet }
  }
}, (request, reply) => {
  const { name, categoryId, status } = request.body
  // Without an explicit transaction, the statement commits: it is on disk when this returns.
  const id = sql.create.run(name, categoryId, status).lastInsertRowid
  reply.code(201).header('location', `${base}/pets/${id}`).send({ id, name, categoryId, status })
})

function deprecate (request, reply, done) {
  const docs = base.slice(0, -'/v1'.length)
  reply.headers({
    deprecation: '@1795132800',
    sunset: 'Thu, 05 Dec 2030 00:00:00 GMT',
    link: `<${docs}/docs/deprecations>; rel="deprecation", <${base}/pets>; rel="successor-version"`
  })
  done()
}

app.get('/v1/pets/:petId', {
  onRequest: [deprecate, authenticate],
  schema: { response: { 200: pet } }
}, (request, reply) => {
  const { petId } = request.params
  const found = /^-?[0-9]+$/.test(petId) ? sql.get.get(Number(petId)) : undefined
  if (found === undefined) throw new ApiError(404, 'not_found', 'There is no animal with this id.')
  reply.send(found)
})

/** `msg_` and a UUIDv7 (RFC 9562, section 5.7). */
function messageId (now) {
  const id = randomBytes(16)
  id.writeUIntBE(now, 0, 6)
  id[6] = (id[6] & 0x0f) | 0x70
  id[8] = (id[8] & 0x3f) | 0x80
  return `msg_${id.toString('hex')}`
}

app.post('/v1/messages', {
  onRequest: authenticate,
  schema: {
    body: { type: 'object', required: ['message'], properties: { message: text } },
    response: { 202: message }
  }
}, (request, reply) => {
  const now = new Date()
  const id = messageId(now.getTime())
  sql.send.run(id, request.account, request.body.message, now.getTime())
  reply.code(202).send({ id, message: request.body.message, status: 'queued', createdAt: now.toISOString() })
})

// --- Start and stop ---------------------------------------------------------------------------------------------

await app.listen({ host: '127.0.0.1', port: Number(process.env.PORT ?? 0) })
const { port } = app.server.address()
base = process.env.BASE_URL ?? `http://127.0.0.1:${port}/v1`
console.log(`listening 127.0.0.1:${port}`)

for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, async () => {
    await app.close()
    db.close()
  })
}
