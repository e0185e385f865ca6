#!/bin/bash
# Runs once, when the volume of PostgreSQL is empty: roles, passwords from files, and the database.
set -euo pipefail
psql -v ON_ERROR_STOP=1 --username postgres --file /weir/roles.sql
psql -v ON_ERROR_STOP=1 --username postgres \
  -v admin="$(cat /run/secrets/weir_admin_password)" -v weir="$(cat /run/secrets/weir_password)" <<'SQL'
ALTER ROLE weir_admin PASSWORD :'admin';
ALTER ROLE weir PASSWORD :'weir';
CREATE DATABASE weir OWNER weir_admin;
SQL
