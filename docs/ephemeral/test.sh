#!/bin/sh
set -eu
# Runs this script again, with a store.
[ "${1-}" = with-store ] || exec petstore ephemeral -- sh "$0" with-store

curl -sf "$STORE_URL/pets" -H "Authorization: Bearer $STORE_API_KEY" | grep -q Rex
