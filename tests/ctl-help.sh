#!/bin/sh
# The commands of `gpuwmctl --help` and those of its man page are the same, word for
# word; so are the options of the other programs, the metrics of gpuwm-exporter, and gpuwmd's keys, and theirs; and the methods, error codes,
# kinds of events and counters on the wire, and those of docs/protocol.md, docs/protocol/ and of the exporter's page.
#   tests/ctl-help.sh BUILD
set -eu
build=$1
root=$(dirname "$0")/..
man=$root/docs/man
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
protocol=$work/protocol.md
cat "$root"/docs/protocol.md "$root"/docs/protocol/*.md > "$protocol"
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

# The usage of each command, whose lines are joined, and the names of its options.
"$build/bin/gpuwmctl" help --all > "$work/help"
awk '/^usage: gpuwmctl /{ use = substr($0, 17); next } use && /^ /{ sub(/^ +/, " "); use = use $0; next }
	use { print use; use = "" }' "$work/help" > "$work/usages"
sort "$work/usages" > "$work/commands"
sed -n '/^# COMMANDS/,/^# EXIT/s/^\(\*[a-z].*\)/\1/p' "$man/gpuwmctl.1.scd" |
	sed 's/\\_/\n/g; s/[*_]//g; s/\n/_/g' | sort > "$work/commands.man"
same "the commands of gpuwmctl" "$work/commands" "$work/commands.man"

# Every command that is no secret has a line in the list.
"$build/bin/gpuwmctl" --help | sed -n '/^usage/,/^options:/s/^  \([a-z][a-z]*\)  .*/\1/p' | sort > "$work/listed"
sed 's/ .*//' "$work/commands" > "$work/names"
same "the list of commands and their help" "$work/names" "$work/listed"

# Each option of a usage has its line of help, and the other way round.
grep -o '^[a-z]*\|[[ ]--[a-z-]*' "$work/usages" | sed 's/^[[ ]*//' > "$work/in.usage"
grep -o '^usage: gpuwmctl [a-z]*\|^  \(-., \)\?--[a-z-]*' "$work/help" |
	sed 's/^usage: gpuwmctl //; s/^ *\(-., \)\?--/--/' > "$work/in.help"
same "the options of usage and help" "$work/in.usage" "$work/in.help"

# Other names of commands.
sed -n 's/^Also: //p' "$work/help" | sort > "$work/also"
sed -n 's/.*Also: \*\(.*\)\*\./\1/p' "$man/gpuwmctl.1.scd" | sort > "$work/also.man"
same "other names of commands" "$work/also" "$work/also.man"

# A build may lack programs whose libraries are not there.
for program in gpuwmd gpuwm-loader gpuwm-keeper gpuwm-exporter gpuwm-peer gpuwm-follow; do
	[ -x "$build/bin/$program" ] || continue
	"$build/bin/$program" --help | sed -n 's/^  \(-., \)\?\(--[a-z-]*\).*/\2/p' | sort > "$work/options"
	sed -n '/^# OPTIONS/,/^# /s/^\(\*-.\*, \)\?\*\(--[a-z-]*\)\*.*/\2/p' "$man/$program.8.scd" | sort > "$work/options.man"
	same "the options of $program" "$work/options" "$work/options.man"
done

if [ -x "$build/bin/gpuwm-exporter" ]; then
	# Every metric that the exporter has a row for. What gpuwmd counts is in docs/protocol.md.
	grep -ho '"gpuwm_[a-z_]*"' "$root"/exporter/metrics*.c | tr -d '"' | grep -v '_$' | sort -u > "$work/metrics"
	sed -n '/^# METRICS/,/^# LIMITS/s/^_\(gpuwm_[a-z_]*\)_.*/\1/p' "$man/gpuwm-exporter.8.scd" | sort -u > "$work/metrics.man"
	same "the metrics of gpuwm-exporter" "$work/metrics" "$work/metrics.man"
fi
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

# The exporter's page has a sentence for each kind, and one for "lost", which is no event.
sed -n '/^const SENTENCES/,/^};/s/^  \([a-z_]*\): .*/\1/p' "$root/exporter/page/events.js" | sed '/^lost$/d' |
	sort > "$work/events.page"
same "the kinds of events and the sentences of the page" "$work/events" "$work/events.page"

# What gpuwmd counts.
sed -n 's/.*\[METRIC_[A-Z_]*\] = "\([a-z_]*\)",.*/\1/p; s/.*put_counter(w, "\([a-z_]*\)",.*/\1/p' \
	"$root/daemon/base/metrics.c" "$root/daemon/methods/methods_metrics.c" | sort > "$work/counters"
sed -n '/^| counter/,/^$/s/^| \(`[^|]*\) |.*/\1/p' "$protocol" | tr -d '` ' | tr ',' '\n' | sort > "$work/counters.doc"
same "the counters of gpuwmd" "$work/counters" "$work/counters.doc"

# A form that its list lacks would be compared with no document.
sed -n 's/^extern const struct message_form \([a-z_, ]*\);.*/\1/p' "$root"/proto/wire/messages_*.h |
	tr -d ' ' | tr ',' '\n' | sort > "$work/forms"
cat "$root/proto/wire/messages.c" "$root/proto/wire/messages_events.c" | grep -o '&\(form\|event\)_[a-z_]*,' |
	tr -d '&,' | sort > "$work/forms.listed"
same "the forms of messages and their lists" "$work/forms" "$work/forms.listed"

sed -n 's/.*{-E[A-Z0-9]*, "\(.*\)"},/\1/p' "$root/base/errors.c" | sort > "$work/codes"
sed -n '/^## Error codes/,/^## Roles/s/^| \(`[^|]*\) |.*/\1/p' "$protocol" | tr -d '` ' | tr ',' '\n' | sort > "$work/codes.doc"
same "the error codes" "$work/codes" "$work/codes.doc"

# explain knows every code of the protocol, and every exit status of the man page.
"$build/bin/gpuwmctl" explain | sed -n 's/^  \(E[A-Z0-9]*\) .*/\1/p' | sort > "$work/explained"
same "the error codes that are explained" "$work/codes" "$work/explained"
"$build/bin/gpuwmctl" explain | sed -n 's/^  \([0-9]\) .*/\1/p' > "$work/statuses"
sed -n '/^# EXIT STATUS/,/^# ENV/s/^|[ [] *\*\([0-9]\)\*/\1/p' "$man/gpuwmctl.1.scd" > "$work/statuses.man"
same "the exit statuses" "$work/statuses" "$work/statuses.man"
# Each of these codes is one that some test expects.
(cd "$root" && grep -rhow --include='*.[ch]' --include='*.py' --exclude='proto_errors.c' 'E[A-Z0-9]*' \
	tests/unit tests/system tests/operators python/tests) | sort -u > "$work/tested"
comm -12 "$work/explained" "$work/tested" > "$work/explained.tested"
same "the error codes that a test expects" "$work/explained" "$work/explained.tested"

# Commands of a man page name the programs where they are installed: the Makefile puts PREFIX into the pages.
if grep -n '/usr/local/bin/\|/usr/bin/gpuwm' "$man"/*.scd >&2; then
	echo "ctl-help: a man page names a folder of one installation: @PREFIX@/bin is wanted" >&2
	failed=1
fi
if grep -ln '@PREFIX@' "$build"/man/* >&2; then
	echo "ctl-help: a man page that was built has no prefix" >&2
	failed=1
fi

exit $failed
