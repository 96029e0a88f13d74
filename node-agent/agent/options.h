/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's one table of options, and the places that follow from who runs it: systemd's
 * directories where it set them, the system's for root, the XDG ones for an ordinary user. What a
 * scheduler may ask of this node is bounded here and nowhere else.
 *
 * A run directory in which the longest socket path would not fit is refused here
 * (SOCKET_PATH_TOO_LONG), not at the first sandbox.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

struct agent_options {
	/* "" */
	char *state, *cache, *run;
	char *token_file; /* of `join` */
	bool replace;     /* of `join` */
	bool adopt;       /* likewise */
	bool fix;         /* of `doctor` */
	char *why;        /* of `drain` */
	int64_t deadline; /* us; likewise */
	bool all;         /* of `stop` */
	bool now;         /* of `uninstall` */
	bool check;       /* of `upgrade` */
	char *upgrade_key;
	char *on_revoke; /* keep, stop */
	/* [vmm] */
	char *vmm_path, *vmm_jail;
	char *kvm_device;
	bool kvm_probe;
	uint64_t vmm_timeout_ms;
	/* [guest] */
	char *kernel, *initramfs, *cmdline;
	uint64_t kernel_timeout_ms, guest_timeout_ms, stop_grace_ms;
	/* [limits] */
	uint64_t max_sandboxes, max_starts, max_vcpus, memory_mib, max_disk_mib, disk_mib;
	/* [helper] */
	char *helper_socket, *helper_dns;
	/* [link] */
	bool relay;
	uint64_t max_streams;
	char *link_transport, *link_tls_name, *link_proxy, *link_proxy_user, *link_proxy_password_file;
	/* [gateway] */
	char *gateway_admin, *gateway_http;
	/* [audit] */
	char *audit_directory;
	/* [telemetry] */
	uint64_t spool_size;
	/* [image] */
	uint64_t disk_floor_percent, max_image_size;
	int64_t usage_period;
	int64_t image_max_age;
	int64_t canary_period; /* us */
	int64_t doctor_period;
};

/* Reads flags, environment and file (none: /etc/croft/node.conf or the user's own where there is
 * one), fills in the places and checks them. argc and argv are left with what is no option. */
int agent_options_load(struct agent_options *options, int *argc, char **argv, struct err *reterr);
void agent_options_free(struct agent_options *options);
void agent_options_help(FILE *out);
void agent_options_sample(FILE *out);
