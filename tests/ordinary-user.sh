#!/bin/sh
# README's first commands by an ordinary user, who is made for it: a fresh clone, the demo, unit and system tests on host.
#   tests/ordinary-user.sh
# Needs root, to make the user. The last line is that of scripts/check.
set -eu
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "only root can make a user"; exit 77; }
command -v useradd >/dev/null || { echo "there is no useradd: apt-get install passwd"; exit 77; }
home=$(mktemp -d /tmp/gpuwm-user-XXXXXX)
user=gpuwm-${home##*-}
user=$(echo "$user" | tr '[:upper:]' '[:lower:]')
trap 'pkill -KILL -u "$user" || true; userdel "$user"; rm -rf "$home"' EXIT
useradd --no-create-home --home-dir "$home" --shell /bin/sh "$user"
git clone --quiet . "$home/gpuwm"
chown -R "$user": "$home"
chmod 0700 "$home"
# A soft limit of 1,024 files is what most machines give.
setpriv --reuid "$user" --regid "$user" --init-groups --reset-env sh -c '
	set -e
	ulimit -Sn 1024
	cd "$HOME/gpuwm"
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	tests/operators/pages/blocks README.md 4 >"$HOME/commands"
	sh -e "$HOME/commands"'
