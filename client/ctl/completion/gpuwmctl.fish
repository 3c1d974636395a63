# fish completion of gpuwmctl: gpuwmctl itself says what may follow.

function __gpuwmctl_complete
	set -l words (commandline -opc)
	set -l current (commandline -ct)
	set -l lines ($words[1] complete -- $words[2..-1] "$current" 2>/dev/null)
	if test "$lines[1]" = ':files'
		__fish_complete_path "$current"
	else if set -q lines[1]
		printf '%s\n' $lines
	end
end

complete -c gpuwmctl -f -a '(__gpuwmctl_complete)'
