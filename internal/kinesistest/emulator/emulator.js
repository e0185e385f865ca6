'use strict'
// A Kinesis emulator for tests: kinesalite behind a server on loopback that shifts its clock, injects errors, and mends what it lacks.
//
// It prints "READY <port>" and then answers each line of standard input, a JSON command, with a line. It ends with standard input.
const http = require('http')
const path = require('path')
const readline = require('readline')
const {Readable} = require('stream')

// The clock comes first: kinesalite asks Date for everything it calls "now".
let shift = 0
const RealDate = Date
class ShiftedDate extends RealDate {
  constructor(...args) { if (args.length === 0) super(RealDate.now() + shift); else super(...args) }
  static now() { return RealDate.now() + shift }
}
global.Date = ShiftedDate

const kinesalite = require(path.join(process.argv[process.argv.length - 1], 'node_modules', 'kinesalite'))
const inner = kinesalite({createStreamMs: 0, deleteStreamMs: 0, updateStreamMs: 0, shardLimit: 10000})

const calls = {}   // operation → how often it was asked for
let faults = []    // {op, type, message, every, left, seen}

function fault(op) {
  for (const f of faults) {
    if (f.op !== op || f.left === 0) continue
    f.seen++
    if (f.seen % f.every !== 0) continue
    if (f.left > 0) f.left--
    return f
  }
  return null
}

function forward(req, res, data) {
  const body = Buffer.from(JSON.stringify(data))
  const headers = Object.assign({}, req.headers, {'content-length': String(body.length)})
  inner.emit('request', Object.assign(Readable.from([body]), {method: req.method, url: req.url, headers}), res)
}

function refuse(res, type, message) {
  const body = JSON.stringify({__type: type, message})
  res.writeHead(type === 'InternalFailure' ? 500 : 400, {'Content-Type': 'application/x-amz-json-1.1', 'Content-Length': Buffer.byteLength(body)})
  res.end(body)
}

// ask asks kinesalite in the middle of a request, and calls back with the answer; null is a refusal.
function ask(req, res, op, data, back) {
  const aside = Object.create(res)
  let status = 200
  Object.defineProperty(aside, 'statusCode', {set(v) { status = v }, get() { return status }})
  aside.setHeader = () => {}
  aside.end = (body) => back(status === 200 ? JSON.parse(String(body)) : null)
  const headers = Object.assign({}, req.headers, {'x-amz-target': 'Kinesis_20131202.' + op})
  forward({method: req.method, url: req.url, headers}, aside, data)
}

// atTimestamp asks for LATEST where nothing is newer, since kinesalite gives no answer there, and else as it is.
function atTimestamp(req, res, data) {
  const {StreamName, ShardId} = data
  const look = (page) => {
    if (page === null || page.Records.some((r) => r.ApproximateArrivalTimestamp >= data.Timestamp)) return forward(req, res, data)
    if (page.NextShardIterator && page.MillisBehindLatest > 0) return ask(req, res, 'GetRecords', {ShardIterator: page.NextShardIterator}, look)
    forward(req, res, {StreamName, ShardId, ShardIteratorType: 'LATEST'})
  }
  if (data.Timestamp * 1000 > Date.now()) return forward(req, res, data) // which is refused
  ask(req, res, 'GetShardIterator', {StreamName, ShardId, ShardIteratorType: 'TRIM_HORIZON'},
    (first) => first === null ? forward(req, res, data) : ask(req, res, 'GetRecords', {ShardIterator: first.ShardIterator}, look))
}

const server = http.createServer((req, res) => {
  const chunks = []
  req.on('data', (c) => chunks.push(c))
  req.on('end', () => {
    const op = (req.headers['x-amz-target'] || '').split('.')[1] || ''
    calls[op] = (calls[op] || 0) + 1
    res.setHeader('Date', new Date().toUTCString()) // Node's own does not know the shift
    const f = fault(op)
    if (f) return f.type === 'HANG_UP' ? req.socket.destroy() : refuse(res, f.type, f.message)
    let data
    try { data = JSON.parse(Buffer.concat(chunks).toString() || '{}') } catch (e) { return refuse(res, 'SerializationException', String(e)) }
    if (data.StreamARN) {
      data.StreamName = data.StreamName || data.StreamARN.split('/').pop()
      delete data.StreamARN
    }
    if (op === 'GetShardIterator' && data.ShardIteratorType === 'AT_TIMESTAMP') return atTimestamp(req, res, data)
    forward(req, res, data)
  })
})
server.keepAliveTimeout = 60000

const commands = {
  shift(c) { shift = c.ms; return {} },
  fail(c) { faults.push({op: c.op, type: c.type, message: c.message || 'injected', every: c.every || 1, left: c.times, seen: 0}); return {} },
  heal() { faults = []; return {} },
  calls() { return calls },
}

server.listen(0, '127.0.0.1', () => {
  console.log('READY ' + server.address().port)
  const lines = readline.createInterface({input: process.stdin})
  lines.on('line', (line) => {
    let out
    try { const c = JSON.parse(line); out = commands[c.cmd](c) } catch (e) { out = {error: String(e)} }
    console.log(JSON.stringify(out))
  })
  lines.on('close', () => process.exit(0))
})
