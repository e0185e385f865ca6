// Package server is the HTTP API of the control plane: it admits runs, shows them and what they made, and cancels those that have not
// started. It never takes code, a path or a URL: flows and snapshots are names that were registered from disk.
//
//	POST /v1/runs                admit a run; Idempotency-Key is required: 201 a new run, 200 the same again, 409 another body
//	GET  /v1/runs                a page of runs, newest first: principal, phase, limit, cursor
//	GET  /v1/runs/{id}           one run
//	POST /v1/runs/{id}/cancel    ask that a run not start
//	GET  /v1/runs/{id}/result    what was published
//	GET  /v1/artifacts/{hash}    a document by its content address
//	GET  /v1/flows, /v1/snapshots   the registered names
//	GET  /v1/events              phases of runs as they change, server-sent
//	GET  /livez, /readyz         probes; /readyz?verbose says what it found
//	GET  /v1/openapi.json        this interface
//
// # Safety
//
// Loopback by default; another address needs tokens and TLS. With tokens every route but /livez asks for one, as a bearer. Host and
// Origin are checked even on loopback, so that no page in a browser can reach the API by a name of its own. Writes are JSON. Bodies,
// headers, times and streams are limited. Errors are problem documents (RFC 9457) with a code of docs/errors.md; they hold no stack,
// path or statement.
package server
