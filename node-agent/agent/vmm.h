/* SPDX-License-Identifier: Apache-2.0
 *
 * One croft-vmm process as this agent sees it: how it is started (own session, only the descriptors
 * it is to have), found again after a restart of the agent, spoken to (<run>/control.sock,
 * vmm.proto) and how its end is learned (pidfd, then its exit record, then the wait status).
 * Freeing the object lets the process live: an agent that ends takes nobody with it.
 *
 * Files in the run directory: control.sock (listened on by the VMM), vsock.sock (host -> guest),
 * vsock.sock_<P> (guest -> host), exit (its last word), vmm.log, console.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "core/supervisor.h"

struct event_base;
struct vmm;

#define VMM_LOG_MAX (256u * 1024u)

struct vmm_exit {
	enum sv_exit reason;
	int signal; /* where it is known */
	bool reached_userspace;
	struct err failure; /* START_FAILED, KVM_INTERNAL, HOST_MEMORY */
};

/* What a VMM that was forked gave, for others to begin as it: state, memory, and the layers over that. */
#define VMM_FORK_STATE 0u
#define VMM_FORK_MEMORY 1u
#define VMM_FORK_FDS_MAX 10u
struct vmm_fork {
	int fds[VMM_FORK_FDS_MAX];
	size_t n; /* 0: none */
};
void vmm_fork_close(struct vmm_fork *fork);

struct vmm_handler {
	/* Once after vmm_spawn(): the process is confined and takes vmm_start(). `is_whole`: every step of its
	 * jail was applied. */
	void (*on_jailed)(bool is_whole, const char *text, void *user);
	void (*on_started)(void *user);
	void (*on_userspace)(void *user);
	/* The answer to vmm_ask_status(). `lease_left_ms` 0: the VM has none. `is_unforked`: it froze nothing. */
	void (*on_status)(uint64_t lease_left_ms, bool is_unforked, void *user);
	/* The answer to vmm_pause(), vmm_resume(), vmm_snapshot() or vmm_fork(), whichever came last. `err` NULL: done. */
	void (*on_slept)(const struct err *err, void *user);
	/* The process is gone and reaped; `vmm` stays until it is freed. */
	void (*on_exit)(const struct vmm_exit *exit, void *user);
	/* vmm_kill() of a process of another uid: whoever started it is to end it. */
	void (*on_kill_forbidden)(void *user);
};

/* Starts the process, which confines itself (on_jailed) and waits for vmm_start(). run_dir exists. `jail` is
 * croft-vmm's --jail. *ret_id is who it is.
 * VMM_START_FAILED, HOST_LIMIT. */
/* The control group that the host says; "" where it says none. */
void vmm_group_of(pid_t pid, char *ret, size_t size);
int vmm_spawn(struct vmm **ret, struct event_base *base, const char *program, const char *jail,
	const char *run_dir, const char *sandbox, const struct vmm_handler *handler, void *user,
	struct sv_vmm_id *ret_id, struct err *reterr);

/* One that was started for us, with the files of vmm-spawn.h; `pid_fd` becomes the object's in every case. */
struct vmm_process {
	int pid_fd;
	pid_t pid;
	uint64_t start_ticks;
};
int vmm_attach(struct vmm **ret, struct event_base *base, const char *run_dir, const struct vmm_process *process,
	const struct vmm_handler *handler, void *user, struct sv_vmm_id *ret_id, struct err *reterr);

/* Finds a process of an earlier agent: by pid, start time and boot where the pid is known, else by
 * its command line. -ESRCH: it is gone (VM_VANISHED, HOST_REBOOT); then vmm_last_word() may tell why. *ret_id is
 * completed. */
int vmm_find(struct vmm **ret, struct event_base *base, const char *run_dir,
	const struct sv_vmm_id *id, const struct vmm_handler *handler, void *user,
	struct sv_vmm_id *ret_id, struct err *reterr);

/* The exit record that a VMM left in its run directory. false: none. */
bool vmm_last_word(const char *run_dir, struct vmm_exit *ret);

struct vmm_start {
	const char *kvm, *kernel, *initramfs, *cmdline; /* initramfs "": none */
	const char *snapshot_state, *snapshot_memory;   /* in place of kernel and initramfs; "": none */
	const struct vmm_fork *fork;                    /* in place of these four; NULL: none. The caller's */
	const char *image, *disk;                       /* "": none */
	uint32_t vcpus;
	uint64_t memory_mib;
	int tap;            /* -1: no network. The caller's */
	const uint8_t *mac; /* 6 bytes, where there is a TAP */
	struct sv_lease lease;
};
/* Opens what the VM needs at this moment and hands it over. The answer is on_started, or on_exit
 * with START_FAILED; KVM_UNAVAILABLE, KERNEL_MISSING and the like come that way too: the process is
 * ended. */
void vmm_start(struct vmm *vmm, const struct vmm_start *start);

/* 0 or -errno: the control socket does not take it. */
int vmm_ask_status(struct vmm *vmm);
int vmm_stop(struct vmm *vmm, uint32_t grace_ms);
/* 0 or -errno; the answer is on_slept. Of one that is paused, or runs, already: done. */
int vmm_pause(struct vmm *vmm);
int vmm_resume(struct vmm *vmm);
/* Of a paused VM, into two new files (which are not synced). Opened here: the VMM gets descriptors. SNAPSHOT_FAILED,
 * VMM_UNRESPONSIVE. */
int vmm_snapshot(struct vmm *vmm, const char *state_path, const char *memory_path, struct err *reterr);
/* Of a paused VM: after on_slept vmm_take_fork() has the descriptors. 0 or -errno. */
int vmm_fork(struct vmm *vmm);
void vmm_take_fork(struct vmm *vmm, struct vmm_fork *ret);
/* `lease`: until when; of length 0: the VM has none any more. */
int vmm_renew(struct vmm *vmm, const struct sv_lease *lease);
/* SIGKILL through the pidfd; on_exit follows. */
int vmm_kill(struct vmm *vmm);

/* Cuts the log and the console where they grew over VMM_LOG_MAX. */
void vmm_trim_files(const char *run_dir);
void vmm_free(struct vmm *vmm);
