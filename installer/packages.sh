# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What croft needs from Debian to be built, run and tested, and the folders that the scripts share. Sourced.

croft_top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Downloads, kernels and images: outside the checkout, kept between runs.
croft_cache=${XDG_CACHE_HOME:-/var/cache}/croft
mkdir -p "$croft_cache" 2>/dev/null && [ -w "$croft_cache" ] || croft_cache=$HOME/.cache/croft
mkdir -p "$croft_cache"

packages_build=(
	gcc clang libclang-rt-14-dev libc6-dev cmake ninja-build pkg-config
	libevent-dev libzmq3-dev libprotobuf-c-dev protobuf-c-compiler libcurl4-openssl-dev libssl-dev
	libmicrohttpd-dev libsystemd-dev libsqlite3-dev libjansson-dev uthash-dev libarchive-dev libseccomp-dev
	libnftables-dev libnl-route-3-dev zlib1g-dev check
)
packages_run=(
	ca-certificates squashfs-tools-ng e2fsprogs mmdebstrap curl jq procps python3 xz-utils cpio busybox-static kmod
	nftables iproute2
)
# To make croft's own packages.
packages_package=(dpkg-dev file)
# Only tests need them.
packages_test=(erofs-utils systemd lintian)
# Proxies between a node and its scheduler (tests/net/transport).
packages_net=(tinyproxy-bin microsocks)
# To check what machines read (tests/metrics).
packages_metrics=(python3-jsonschema)
# To look at the dashboard (tests/dashboard).
packages_browser=(chromium fonts-dejavu-core)
# To compile the tuned guest kernel, only where it is asked for and not in the cache.
packages_kernel=(make gcc bc bison flex libelf-dev xz-utils)
# The emulated host, only where there is no /dev/kvm.
packages_emulate=(qemu-system-x86)

say() {
	printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

# packages_need NAME...   installs what is missing; without root it says what to install and fails
packages_need() {
	local missing=() name
	for name in "$@"; do
		dpkg-query -W -f='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" != 0 ]; then
		say "these Debian packages are missing; install them as root and start again:"
		say "  apt-get install --no-install-recommends ${missing[*]}"
		return 1
	fi
	say "installing ${#missing[@]} Debian packages"
	local log
	log=$(mktemp)
	if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
		"${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		tail -n 20 "$log" >&2
		say "apt-get failed; the whole log is in $log"
		return 1
	fi
	rm -f "$log"
}

has_kvm() {
	"$croft_top/tests/kvm-host/run" --native 2>/dev/null
}

# build PRESET   configures and builds; the binaries are in build/PRESET/bin
build() {
	local preset=$1 log
	log=$croft_top/build/$preset.log
	mkdir -p "$croft_top/build"
	"$croft_top/scheduler/dashboard/uplot" --has || command -v npm >/dev/null || packages_need npm || return 1
	say "building preset $preset"
	if ! (cd "$croft_top" && cmake --preset "$preset" && cmake --build --preset "$preset") >"$log" 2>&1; then
		grep -E 'error|FAILED|warning' "$log" | head -n 40 >&2
		say "the build of preset $preset failed; the whole log is in build/$preset.log"
		return 1
	fi
}
