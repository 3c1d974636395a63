#!/bin/sh
# The commands of `gpuwmctl --help` and those of its man page are the same, word for
# word; so are the flags of gpuwmd and gpuwm-keeper, and gpuwmd's keys, and theirs; and the methods, error codes
# and kinds of events on the wire, and those of docs/protocol.md.
#   tests/ctl-help.sh BUILD
set -eu
build=$1
root=$(dirname "$0")/..
man=$root/docs/man
protocol=$root/docs/protocol.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# same WHAT EXPECTED FOUND: two sorted lists, the first of which is not empty
same() {
	if [ ! -s "$2" ]; then
		echo "ctl-help: nothing found to compare for $1" >&2
		failed=1
	elif ! diff -u "$2" "$3" >&2; then
		echo "ctl-help: $1 differ (- program, + documentation)" >&2
		failed=1
	fi
}

# The usage of each command: two spaces of indent between "commands:" and "options:".
"$build/bin/gpuwmctl" --help |
	sed -n '/^commands:/,/^options:/s/^  \([a-z].*\)/\1/p' | sort > "$work/commands"
sed -n '/^# COMMANDS/,/^# EXIT/s/^\(\*[a-z].*\)/\1/p' "$man/gpuwmctl.1.scd" |
	tr -d '*_' | sort > "$work/commands.man"
same "the commands of gpuwmctl" "$work/commands" "$work/commands.man"

# Other names of commands: "(also: NAME)" and "Also: *NAME*."
"$build/bin/gpuwmctl" --help | sed -n 's/.*(also: \(.*\))/\1/p' | sort > "$work/also"
sed -n 's/.*Also: \*\(.*\)\*\./\1/p' "$man/gpuwmctl.1.scd" | sort > "$work/also.man"
same "other names of commands" "$work/also" "$work/also.man"

# Each command's own --help is the line of the list.
while read -r usage; do
	if [ "$("$build/bin/gpuwmctl" "${usage%% *}" --help | head -n 1)" != "usage: gpuwmctl $usage" ]; then
		echo "ctl-help: gpuwmctl ${usage%% *} --help shows another usage" >&2
		failed=1
	fi
done < "$work/commands"

"$build/bin/gpuwmd" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | sort > "$work/flags"
sed -n '/^# OPTIONS/,/^# SIGNALS/s/^\*\(--[a-z-]*\)\*.*/\1/p' "$man/gpuwmd.8.scd" | sort > "$work/flags.man"
same "the flags of gpuwmd" "$work/flags" "$work/flags.man"

"$build/bin/gpuwm-keeper" --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p' | sort > "$work/keeper"
sed -n '/^# OPTIONS/,/^# SIGNALS/s/^\*\(--[a-z-]*\)\*.*/\1/p' "$man/gpuwm-keeper.8.scd" | sort > "$work/keeper.man"
same "the flags of gpuwm-keeper" "$work/keeper" "$work/keeper.man"

"$build/bin/gpuwmd" --help | sed -n '/^The configuration/,$s/^  \([a-z_]*\) = .*/\1/p' | sort > "$work/keys"
sed -n '/^# \[/,/^# EXAMPLE/s/^\(\*[a-z_]*\*.*\)/\1/p' "$man/gpuwmd.conf.5.scd" |
	sed '/--help/d' | tr -d '* ' | tr ',' '\n' | sort > "$work/keys.man"
same "the keys of gpuwmd.conf" "$work/keys" "$work/keys.man"

"$build/tests/tools/dump-messages" > "$work/messages"
sed -n 's/^method \([a-z_]*\) .*/\1/p' "$work/messages" | sed '/^loader_/d; /^hand_in$/d' | sort > "$work/methods"
sed -n 's/^### \([a-z_, ]*\) (.*/\1/p' "$protocol" | tr -d ' ' | tr ',' '\n' | sort > "$work/methods.doc"
same "the methods on the wire" "$work/methods" "$work/methods.doc"

sed -n 's/^event \([a-z_]*\) .*/\1/p' "$work/messages" | sort > "$work/events"
sed -n '/^| kind/,/^$/s/^| \(`[^|]*\) |.*/\1/p' "$protocol" | tr -d '` ' | tr ',' '\n' | sort > "$work/events.doc"
same "the kinds of events" "$work/events" "$work/events.doc"

# A form that its list lacks would be compared with no document.
sed -n 's/^extern const struct message_form \([a-z_, ]*\);.*/\1/p' "$root"/proto/messages_*.h |
	tr -d ' ' | tr ',' '\n' | sort > "$work/forms"
cat "$root/proto/messages.c" "$root/proto/messages_events.c" | grep -o '&\(form\|event\)_[a-z_]*,' |
	tr -d '&,' | sort > "$work/forms.listed"
same "the forms of messages and their lists" "$work/forms" "$work/forms.listed"

sed -n 's/.*{-E[A-Z0-9]*, "\(.*\)"},/\1/p' "$root/proto/errors.c" | sort > "$work/codes"
sed -n '/^## Error codes/,/^## Roles/s/^| \(`[^|]*\) |.*/\1/p' "$protocol" | tr -d '` ' | tr ',' '\n' | sort > "$work/codes.doc"
same "the error codes" "$work/codes" "$work/codes.doc"

exit $failed
