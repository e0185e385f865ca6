// Package postgres is a blob store in the PostgreSQL database that holds the control plane: for several machines without a folder in common.
//
// A blob is a row and its parts of at most 4 MiB. It appears under its name in the commit that returns from Put, whole, so there is nothing left
// of one that was not finished. Setting aside changes the row alone; the parts go with the purge. Its schema is that of control/postgres.
package postgres
