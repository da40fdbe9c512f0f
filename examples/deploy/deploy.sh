#!/bin/sh
# Stands in for a real deployment: deploy.sh TARGET VERSION
case "$1" in
    staging) echo "deploying $2 to $1 ..." ;;
    *) echo "there is no target $1" >&2; exit 1 ;;
esac
