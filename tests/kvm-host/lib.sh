# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Shared by the scripts of this folder: where things are, and how to put them there whole or not at all.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
checkout=$(cd "$here/../.." && pwd -P)

say() { printf 'kvm-host: %s\n' "$*" >&2; }

# Whether this machine's own KVM boots kernels as they are. A KVM without VT-x or AMD-V below it (kvm_pvm) opens, makes VMs
# and runs a few instructions, but only kernels made for it come up (docs/decisions/0024). -c first: as root the shell
# would make a file of that name.
has_kvm() {
	[ -c /dev/kvm ] && (exec 3<>/dev/kvm) 2>/dev/null && grep -qwE 'vmx|svm' /proc/cpuinfo
}

# Neither KVM nor an emulated host can be had here.
not_run() {
	printf 'not run: %s\n' "$*" >&2
	exit 77
}

# Something that should have worked did not.
fail() {
	say "$*"
	exit 125
}

# Prints the cache folder, which exists afterwards.
cache_dir() {
	local dir
	for dir in "${XDG_CACHE_HOME:-/var/cache}/croft" "${HOME:-/nonexistent}/.cache/croft"; do
		if mkdir -p "$dir/kvm-host" 2>/dev/null && [ -w "$dir/kvm-host" ]; then
			printf '%s\n' "$dir/kvm-host"
			return
		fi
	done
	not_run "no folder for the cache can be written"
}

# cache_make PATH FUNCTION: makes the folder PATH by FUNCTION, which gets an empty folder to fill.
# PATH is there whole or not at all, whatever is killed meanwhile; of several makers one works.
cache_make() {
	local path=$1 make=$2
	[ -d "$path" ] && return
	(
		flock 9
		[ -d "$path" ] && exit
		find "$(dirname "$path")" -maxdepth 1 -name "$(basename "$path").tmp.*" -exec rm -rf {} +
		tmp=$(mktemp -d "$path.tmp.XXXXXX")
		trap 'rm -rf "$tmp"' EXIT
		chmod 755 "$tmp"
		"$make" "$tmp"
		mv -T "$tmp" "$path"
	) 9>"$path.lock"
}

# The start time of a process in clock ticks since boot: with its pid it names the process for good.
process_start() {
	local stat
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	stat=${stat##*) }
	# shellcheck disable=SC2086
	set -- $stat
	[ "$1" != Z ] && printf '%s\n' "${20}"
}

# is_process PID START: is the process we mean still there?
is_process() { [ -n "$2" ] && [ "$(process_start "$1")" = "$2" ]; }

# lost_dir DIR: where the logs of the host of DIR are kept if its QEMU ends by itself.
lost_dir() { printf '%s/lost/%s\n' "$(cache_dir)" "$(basename "$1")"; }

# show_logs DIR: the end of what a host's processes and its kernel said.
show_logs() {
	grep -a -E '^kvm-host failed|Kernel panic' "$1/console.log" || true
	tail -n 5 "$1"/host.log "$1"/qemu.log "$1"/virtiofsd-*.log 2>/dev/null | grep -v '^$' || true
	printf 'the last lines of its console:\n'
	tail -n "${2:-30}" "$1/console.log" | tr -d '\r'
}
