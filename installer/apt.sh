# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# How this machine's apt reaches Debian, for roots that are made from the same archive: a mirror or a proxy that is
# configured here is used there too, and nothing of it is written into the checkout. Sourced.

# The Debian sources of this machine as lines of a sources.list, without those of others.
apt_sources() {
	# shellcheck disable=SC2016  # apt's own variables
	apt-get indextargets --format '$(CREATED_BY) $(ORIGIN) $(ARCHITECTURE) $(REPO_URI) $(RELEASE) $(COMPONENT)' |
		awk -v arch="$(dpkg --print-architecture)" '$1 == "Packages" && $2 == "Debian" && $3 == arch { print "deb", $4, $5, $6 }' |
		sort -u
}

# As apt_sources; reads the package lists first where there are none yet and we may.
apt_sources_or_update() {
	local found
	found=$(apt_sources)
	if [ -z "$found" ] && [ "$(id -u)" -eq 0 ]; then
		apt-get -q update >/dev/null || true
		found=$(apt_sources)
	fi
	printf '%s\n' "$found"
}

# Options of apt that decide how the network is reached.
apt_network_options() {
	apt-config dump 2>/dev/null | grep -E '^Acquire::(http|https|Retries|ForceIPv4|Check-[A-Za-z-]+)(::| )' | grep -v ' "";$' || true
}
