#!/bin/bash
# Makes the folder secrets beside this file, with new passwords: for one machine. Nothing that is there is changed.
set -euo pipefail
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
new() { test -e "secrets/$1" || head -c 24 /dev/urandom | od -An -vtx1 | tr -d ' \n' > "secrets/$1"; }
new postgres_password
new weir_admin_password
new weir_password
printf 'postgres://weir_admin:%s@postgres:5432/weir?sslmode=disable' "$(cat secrets/weir_admin_password)" > secrets/store_admin
printf 'postgres://weir:%s@postgres:5432/weir?sslmode=disable' "$(cat secrets/weir_password)" > secrets/store
