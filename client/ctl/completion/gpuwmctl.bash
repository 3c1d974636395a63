# bash completion of gpuwmctl: gpuwmctl itself says what may follow.

_gpuwmctl() {
	local line=${COMP_LINE:0:COMP_POINT} words=() current='' candidate about breaks
	# Without -r, so that a backslash keeps a space within a word.
	read -a words <<<"$line"
	case $line in
	*[!\\][[:space:]]) words+=('') ;;
	esac
	current=${words[${#words[@]} - 1]}
	COMPREPLY=()
	while IFS=$'\t' read -r candidate about; do
		if [ "$candidate" = :files ]; then
			compopt -o filenames 2>/dev/null
			while IFS= read -r candidate; do
				COMPREPLY+=("$candidate")
			done < <(compgen -f -- "$current")
			return
		fi
		COMPREPLY+=("$candidate")
	done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
	# What is to be continued, as in "llama@", "--device=" and "hf:".
	if [ ${#COMPREPLY[@]} -eq 1 ]; then
		case ${COMPREPLY[0]} in
		*[@=:]) compopt -o nospace 2>/dev/null ;;
		esac
	fi
	# bash takes @, = and : for the end of a word, and replaces only what stands behind the last of them.
	breaks=${COMP_WORDBREAKS//[!@=:]/}
	if [ -n "$breaks" ] && [[ $current == *[$breaks]* ]]; then
		local tail=${current##*[$breaks]}
		local head=${current%"$tail"}
		COMPREPLY=("${COMPREPLY[@]#"$head"}")
	fi
}
complete -F _gpuwmctl gpuwmctl
