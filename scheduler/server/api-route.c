/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of routes, and docs/api.md made from it. Whatever a path can do stands in its row and nowhere else.
 */
#include <stdio.h>
#include <string.h>

#include "server/api.h"

#define CREATE_BODY                                                                                                    \
	"`templateID` (\"base\"; or a snapshot's id or name: size, image, disk and pool are the snapshot's then, and others are refused), `timeout` s, `metadata` {string: string}, `envVars` {string: string}, `vcpus` or "   \
	"`cpuCount` (1 to 32), `memoryMB`, `diskSizeMB`, `setupCommand` (run with `sh -c` before it is ready), "       \
	"`setupTimeoutMs`, `secure`, `allow_internet_access` (true) and `network` {`allowOut`, `denyOut`: arrays of CIDR blocks, " \
	"addresses and host names (`*.` before one: every name below it); what is allowed is so before what is denied}, `pool`, `queueTimeoutMs` (longest wait for room; 0: none, but 15 s for that of sandboxes which are being ended), " \
	"`region`, `labels` {string: string} and `cpuClass` that the node must have, `priority` (0 to 9, among the tenant's own), `autoPause` (at the end of its time it is paused, not ended), `autoResume` {enabled: true} (a call for it wakes it while it is paused), `budget` (as of `PUT /v1/sandboxes/{id}/budget`). All optional; others " \
	"are ignored."
#define SANDBOX_ANSWER                                                                             \
	"Sandbox: `sandboxID templateID clientID alias envdVersion domain envdAccessToken trafficAccessToken`"
#define SNAPSHOT_ANSWER "{`snapshotID names name sandboxID state createdAt cpuCount memoryMB diskSizeMB sizeMB cpuClass`}"
#define DETAIL_ANSWER                                                                                             \
	"the Sandbox's members and `startedAt endAt state cpuCount memoryMB diskSizeMB metadata allowInternetAccess network lifecycle`, and " \
	"`croft` {`state node_state as_of certain stages`}"

/* clang-format off */
const struct api_route api_routes[] = {
	{ "GET", "/health", BY_ANYBODY, SCOPE_NONE, API_NO_BODY, api_health,
		"Whether the scheduler serves.", "",
		"200 {`status`: \"ok\", `version`, `lineage`}; 503 with `status` \"store-failed\" while the store cannot be written." },
	{ "GET", "/metrics", BY_PROVIDER_WATCHERS, SCOPE_PROVIDER, API_NO_BODY, api_metrics,
		"Prometheus text.", "", "200 `text/plain`" },
	{ "GET", "/", BY_ANYBODY, SCOPE_NONE, API_NO_BODY, api_dashboard_enter, "To the dashboard.", "", "303" },
	{ "GET", "/dashboard", BY_ANYBODY, SCOPE_NONE, API_NO_BODY, api_dashboard_enter, "To the dashboard.", "", "303" },
	{ "GET", "/dashboard/", BY_ANYBODY, SCOPE_NONE, API_NO_BODY, api_dashboard,
		"The dashboard: a page that shows what the other paths answer to the key of whoever looks.", "", "200 `text/html`" },
	{ "GET", "/dashboard/{file}", BY_ANYBODY, SCOPE_NONE, API_NO_BODY, api_dashboard, "What the dashboard is made of; no data.", "",
		"200; 304 where `If-None-Match` is its `ETag`; 404" },
	{ "GET", "/v1/whoami", BY_ALL, SCOPE_NONE, API_NO_BODY, api_whoami,
		"What this key is.", "", "200 {`key` (its id), `role`, `tenant`, `customer`}" },

	{ "POST", "/v2/sandboxes", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_create,
		"Creates a sandbox and waits until it is ready (E2B).", CREATE_BODY, "201 " SANDBOX_ANSWER },
	{ "POST", "/sandboxes", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_create,
		"The same (E2B, older path).", CREATE_BODY, "201 " SANDBOX_ANSWER },
	{ "POST", "/v1/sandboxes", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_create_async,
		"Creates a sandbox and answers as soon as it is placed and recorded; watch `GET /v1/sandboxes/{id}`.",
		CREATE_BODY, "202 " SANDBOX_ANSWER ", and `id`, `state`: \"starting\"" },
	{ "GET", "/v2/sandboxes", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_list,
		"Lists running and paused sandboxes (E2B).",
		"query `state` (comma-joined: starting, running, paused, stopping), `metadata` (as the SDK encodes it), `limit` (100), `nextToken`",
		"200 array of SandboxDetail; the next page's token in the header `x-next-token`" },
	{ "GET", "/sandboxes", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_list,
		"The same (E2B, older path).", "as above", "as above" },
	{ "GET", "/v1/sandboxes", BY_ALL, SCOPE_REACH, API_NO_BODY, api_sandbox_list_v1,
		"Lists live sandboxes with croft's own members.", "query as above, and `scope=all` for operators: of all tenants that the key reaches; every live state is shown by default",
		"200 array as of `GET /v1/sandboxes/{id}`" },
	{ "GET", "/sandboxes/{id}", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_get,
		"One sandbox (E2B).", "", "200 SandboxDetail: " DETAIL_ANSWER "; 404 when it has ended" },
	{ "GET", "/v1/sandboxes/{id}", BY_ALL, SCOPE_REACH, API_NO_BODY, api_sandbox_get_v1,
		"One sandbox, live or ended, with its stages and its failure record.",
		"query `wait_ms` (to 60000) and `after` (a `version`): answers when the version is another one or the time is over",
		"200 {`id state internal_state node stage generation incarnation version template image vcpus memory_mib disk_mib "
		"timeout_s budget internet network metadata created started ends ended end_reason attempts trace operation guest_boot_id node_state as_of "
		"certain node_differs stages events failure`}; `node_differs`: what its node has otherwise than recorded, or did not confirm: `network`, `budget` (it "
		"is told again); `events` are NODE_DRAIN, NODE_DIFFERS, RESUMED, REPLACED, RECOVERED, PAUSED, WOKEN, SNAPSHOT with `when node detail`" },
	{ "GET", "/v1/sandboxes/{id}/diff", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_diff,
		"What a running sandbox made of its image: files that it added, changed and deleted, as its own guest says it.", "",
		"200 `application/x-ndjson`, passed on from the node as it comes: a line {`change` (\"added\", \"changed\", \"deleted\"), `path` (or `path_base64` where it is no UTF-8), "
		"`type` (file, directory, symlink, other), `size`, `mode`} for each, and a last one: {`end`: {`complete`: false where there are more than 1,000,000, or more than can be "
		"looked at in 2 minutes, `added changed deleted`, `source`: \"guest\"}}, or an error as of every path; without a last line the answer was cut off. "
		"A file that was opened for writing is changed, and a folder that was deleted is one line. 404; 501 UNSUPPORTED from a sandbox that began with an older croft; 502 and 503 as of relayed requests; 503 SANDBOX_NOT_READY while "
		"it is paused" },
	{ "GET", "/v1/sandboxes/{id}/audit", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_audit,
		"What ran in a running sandbox and what became of it, from its node's own audit log, which stays there.", "",
		"200 `application/x-ndjson`, passed on from the node as it comes: a line for each entry, the oldest first: {`seq when prev hash kind sandbox` and what "
		"the kind has: `command` (`command` (a list), `command_is_cut command_sha256 user cwd environment` (names alone) `trace span`), `ended` (`span pid took_ms`, "
		"`exit`, `signal`, `code` or `left`, `stdout` and `stderr`: {`size sha256`, `head` or `head_base64`}), `setup` and `setup-ended`, `connections` (the "
		"counters of its network so far), `denied` (`address protocol port packets`)}, and a last one {`end`: {`entries`, `source`: \"node\"}}; without it the answer was "
		"cut off. 404; 502 and 503 as of relayed requests" },
	{ "DELETE", "/sandboxes/{id}", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_sandbox_delete,
		"Ends a sandbox (E2B).", "", "204 when it is recorded; 404 when there is none, or when it is stopping already" },
	{ "DELETE", "/v1/sandboxes/{id}", BY_USERS, SCOPE_REACH, API_NO_BODY, api_sandbox_delete_v1,
		"Ends a sandbox, in whatever state it is.", "", "204 when it is recorded, also while it is stopping; 404" },
	{ "POST", "/sandboxes/{id}/timeout", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_timeout,
		"Sets the time that is left (E2B).", "`timeout` s from now, 1 and more", "204 when the node did it; 404" },
	{ "PUT", "/sandboxes/{id}/network", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_network,
		"Replaces what a running sandbox may reach (E2B); what is left out is cleared. Connections that it forbids are closed.",
		"`allow_internet_access` (true), `allowOut`, `denyOut` as of a create's `network`",
		"204 when it is in force; 404; 400 INVALID_CIDR or INVALID_ARGUMENT naming the field" },
	{ "PUT", "/v1/sandboxes/{id}/budget", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_budget,
		"Replaces what a sandbox may use; what is left out has no limit. Its node enforces it, also while it is cut off.",
		"`cpu_s`, `gib_s` (GiB-seconds of memory), `egress_bytes`, `wall_s` (that it runs), each more than 0; `action` (\"kill\"; \"pause\")",
		"204 when it is in force; of a paused sandbox when it is recorded, and in force when it wakes; 404. One that has used up its budget ends with the failure "
		"BUDGET_EXCEEDED, or is paused and not woken (402 BUDGET_EXCEEDED) before it has a higher one; what it used is in `GET /v1/usage`" },
	{ "PUT", "/v1/sandboxes/{id}/mark", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_mark,
		"Says whether a sandbox's result was of use, while it lives or afterwards; said again, the later word holds.",
		"`mark`: \"accepted\" or \"rejected\"", "204 when it is durable; 404. `GET /v1/usage` has what an accepted result costs" },
	{ "POST", "/sandboxes/{id}/pause", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_pause,
		"Puts a running sandbox to sleep (E2B): its processes, memory and disk are kept on its node, its memory and vCPUs are free "
		"for others; it counts against the quota of paused sandboxes and of kept disk.", "`memory`: true, optional",
		"204 when it sleeps; 404; 409 when it does already; 429 QUOTA_EXCEEDED; 503 SNAPSHOTTING while a snapshot of it is made, else when it could not be "
		"frozen, and runs on" },
	{ "POST", "/sandboxes/{id}/resume", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_resume,
		"Wakes a paused sandbox (E2B, older path).", "`timeout` s, optional (as it was created with)",
		"201 " SANDBOX_ANSWER "; 404; 409 when it runs; 503 NO_CAPACITY while its node has no room for it" },
	{ "POST", "/v2/sandboxes/{id}/connect", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_connect,
		"Connects to a sandbox (E2B): sets the time that is left where one is named, and wakes a paused one.",
		"`timeout` s, optional (a woken one: as it was created with)",
		"200 " SANDBOX_ANSWER ", 201 when it was paused; 404; 503 NO_CAPACITY while its node has no room for it" },
	{ "POST", "/sandboxes/{id}/connect", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_connect,
		"The same (E2B, older path).", "as above", "as above" },
	{ "POST", "/sandboxes/{id}/snapshots", BY_USERS, SCOPE_TENANT, API_JSON, api_snapshot_create,
		"Keeps a moment of a running sandbox, which goes on (E2B): its processes, memory and disk, on its node, until it is "
		"deleted. A create whose `templateID` is its id, or its name, begins as it.",
		"`name`, optional: 1 to 63 of the characters A-Z, a-z, 0-9, `-`, `_`, `.`, `:`, `/`",
		"201 " SNAPSHOT_ANSWER ", when it is there; 404; 409 while the sandbox is paused; 429 QUOTA_EXCEEDED; "
		"501 SNAPSHOT_UNSUPPORTED; 503 when it could not be made, and nothing of it is left; SNAPSHOTTING while another one of the sandbox is "
		"made, and when this one takes long: it is in the list when it is done" },
	{ "GET", "/snapshots", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_snapshot_list,
		"Lists the tenant's snapshots (E2B), the oldest first.", "query `sandboxID`, `name`, `limit` (100), `nextToken`",
		"200 array of " SNAPSHOT_ANSWER "; `state` is ready, or lost when its node no longer has it; the next page's token in the "
		"header `x-next-token`" },
	{ "GET", "/v1/snapshots", BY_ALL, SCOPE_REACH, API_NO_BODY, api_snapshot_list,
		"Lists snapshots with where they are.", "query as above, and `scope=all` for operators: of all tenants that the key reaches",
		"200 as above, and `tenant`, `pool`, `node`; another tenant's without its names" },
	{ "DELETE", "/templates/{id}", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_snapshot_delete,
		"Deletes a snapshot (E2B). Sandboxes that began as it go on.", "", "204 when it is recorded; 404; 503 SNAPSHOTTING while it is made" },
	{ "POST", "/sandboxes/{id}/fork", BY_USERS, SCOPE_TENANT, API_JSON, api_sandbox_fork,
		"Makes sandboxes that go on from this moment of a running one, which goes on too (E2B), and waits until each runs or failed. "
		"They are on its node and have its environment, network policy and metadata, and tokens of their own.",
		"`count` (1; at most 32), `timeout` s (as it was created with); both optional",
		"201 array of {`sandbox`: " SANDBOX_ANSWER "} or {`error`: {`code`, `message`, `failure`}}, one for each; 404; 409 while the sandbox "
		"is paused; 429 QUOTA_EXCEEDED when not even one may start; 503 SNAPSHOTTING while a snapshot of it is made" },
	{ "POST", "/v1/explain", BY_ALL, SCOPE_REACH, API_JSON, api_explain,
		"How a create with this body would be placed now, without placing it.",
		CREATE_BODY " A key without a tenant names one: `tenant`.",
		"200 {`nodes fitting excluded nearest lacking asked available largest largest_total cause change`}: how many nodes each "
		"constraint excludes, what the nearest one lacks, and what would have to change" },
	{ "GET", "/v1/stages", BY_ALL, SCOPE_REACH, API_NO_BODY, api_stages,
		"Rates of stages of this tenant; with `sandbox`, the records of one, live or ended.",
		"query `sandbox`; or `window` (`5m`, `24h`; without it all that is held), `pool node region template version vcpus memoryMB tenant` "
		"each as it is, `what_if=STAGE:SUCCESS`; `scope=all` for operators and planners: of all tenants that the key reaches",
		"200 {`stages`: [{`stage what attempts ok failed saved skipped success low high p50_ms p90_ms p95_ms p99_ms codes`}], "
		"`product`: the success rates of a start multiplied, `product_low product_high weakest from oldest newest as_of complete "
		"dropped source step_s rows what_if`}: windows over an hour, and those of which single stages were dropped, are answered from sums "
		"(`source` \"sums\") of 10 s, 5 min or 1 h (`step_s`), of which `rows` were read, `low` and `high` bound an interval of 95 %, `saved` are failures apart from `failed`, whose start was ready at "
		"a later attempt: no caller saw them, `codes` are the three commonest with owner (null: in sums of several pools), remedy and the latest example, `complete` is false where older "
		"facts of that time were dropped, and how many in all; calls into sandboxes are counted each, and their times are of those that nodes "
		"told one by one; or {`sandbox state trace attempts records failure`}" },
	{ "GET", "/v1/stages/history", BY_ALL, SCOPE_REACH, API_NO_BODY, api_stage_history,
		"What starts came to over time, from the sums.", "query as of `GET /v1/stages` (`window`: `24h`), `points` (60; at most 120)",
		"200 {`from point_s`, `points`: [{`at starts failed product low high`}], `as_of complete dropped rows`}: a point is of `point_s` from `at` on; its "
		"`product` is null where nothing was started" },
	{ "GET", "/v1/traces/{id}", BY_ALL, SCOPE_REACH, API_NO_BODY, api_trace,
		"One run end to end, by its trace (32 hex digits, the caller's own where it sent a `traceparent`) or by its sandbox.", "",
		"200 {`trace sandbox tenant began took_us`, `steps`: [{`at_us took_us began process stage outcome reason attempt sandbox node "
		"trace span failure`}], `more complete as_of`}: what each process did, in the order in which it began, `at_us` after the first; `process` is "
		"scheduler, node, vmm, guest, gateway or egress, as the maker's own clock has it; `failure` has at least `code component owner remedy`; "
		"`more`: later steps were left out; `complete` is false where older facts of that time were dropped; 404 SANDBOX_NOT_FOUND when nothing is known that the key reaches" },
	{ "GET", "/v1/audit", BY_PROVIDER_WATCHERS, SCOPE_PROVIDER, API_NO_BODY, api_audit,
		"The audit log: who asked for what change, when, and what became of it, in entries that are chained by their hashes.",
		"query `after` (a `seq`), `limit` (100; at most 1000)",
		"200 {`entries`: [{`seq when role key verb object made request trace outcome status code who prev hash personal`}], `head base` "
		"{`seq hash`}, `more dropped`}: a change has an entry with `outcome` asked, written in one batch with it, and one with ok, failed or left "
		"(its client did not wait for the answer), or the latter alone where nothing was written before; forbidden: its key may not. `hash` is the "
		"SHA-256 of the entry without `hash` and `personal` (compact, members sorted), `prev` that of the entry before; `who` is the SHA-256 of "
		"`personal`, which is erased apart and is absent then. `head` is the last entry, `base` the one before the first that is kept, `dropped` "
		"how many entries found no room while the store could not be written" },
	{ "GET", "/v1/failures", BY_ALL, SCOPE_REACH, API_NO_BODY, api_failures,
		"The latest failed attempts at stages of this tenant, and how many there were of each owner.",
		"query `window` (`24h`), `limit` (100; at most 1000), `owner`, `pool node template tenant` each as it is; `scope=all` for operators and planners: of "
		"all tenants that the key reaches",
		"200 {`failures`: [{`when stage code component owner remedy tenant pool node sandbox trace attempt saved n`}], the latest first, `owners`: "
		"{owner: {`failed saved`}}, whatever `owner` says, `more from complete as_of`}: `saved`: a later attempt of its start was ready, no caller saw it; "
		"`n`: calls that it stands for; `complete` is false where older facts of that time were dropped" },
	{ "GET", "/v1/events", BY_ALL, SCOPE_REACH, API_NO_BODY, api_events,
		"What happens, as it happens: server-sent events, until the client leaves.",
		"header `Last-Event-ID`: goes on behind that event; `scope=all` for operators and planners: of all tenants that the key reaches",
		"200 `text/event-stream`: `hello` {`run last missed`} first: `missed` events are no longer there to go on from, of anybody, null where nobody knows how "
		"many; `failure` as in `GET /v1/failures`, with an `id`; `changed` {`stages nodes sandboxes`}: what is worth asking for again, at most every two "
		"seconds; a comment every 15 s. A client that reads too slowly, and a key that is revoked, is cut off. 8 streams of a key, 32 of a "
		"customer (429 RATE_LIMITED), 64 in all, of which 8 are the provider's (503 SCHEDULER_BUSY)" },
	{ "GET", "/v1/fleet", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_fleet,
		"All nodes in short, a page at a time, and their sums.",
		"query `pool`, `limit` (1000; at most 2000; 0: the sums alone), `after` (the last page's `next`)",
		"200 {`sums` {`nodes schedulable unfit joining ready suspect lost removed cordoned draining quarantined memory_mib memory_reserved_mib vcpus vcpus_reserved "
		"disk_mib disk_reserved_mib sandboxes starting`} of all that the key reaches (null behind the first page), `nodes`: [{`id pool hostname version state "
		"schedulable unfit facts memory_mib memory_reserved_mib vcpus vcpus_reserved disk_mib disk_reserved_mib sandboxes max_sandboxes starts failures heard`}], "
		"`next` (null: there is no more) `as_of`}: `vcpus` may be given out, overcommit included; `unfit` is the code for which the node itself takes nothing; "
		"revoked nodes are left out" },
	{ "GET", "/v1/usage", BY_ALL, SCOPE_REACH, API_NO_BODY, api_usage,
		"What sandboxes have used, as their nodes counted it: CPU, memory, disk, egress, running and paused time, and the time that failures cost, by owner.",
		"query `by`: `sandbox` (default), `tenant`, or `account` (one generation of a sandbox on one node, as its node keeps it, of all time); "
		"`window` (`24h`, `30d`; whole hours of UTC; without it all that is kept), `sandbox pool node tenant`; `scope=all` for operators and planners: of all tenants that the key reaches",
		"200 {`by from to`, `records`: [{`tenant sandbox accounts open running_us paused_us disk_us cpu_us egress_bytes uncounted_us spread_us cpu_s "
		"memory_gib_s disk_gib_s as_of`}], or of an account `sandbox generation node pool tenant version began until over vcpus memory_mib disk_mib "
		"running_us paused_us disk_us cpu_us egress_bytes uncounted_us lost_us cpu_s memory_gib_s disk_gib_s heard`, `results` {`accepted rejected`}: sandboxes by their marks (`PUT /v1/sandboxes/{id}/mark`; in a window those marked in it), `per_accepted`: "
		"`total` by the accepted ones, so what was rejected or has no mark is in it too (null: there are none, or rows are left out), `total` of the same counters, `lost`: [{`owner lost_us components`}], "
		"`gaps` {`uncounted_us`: in which sandboxes may have run and nobody counted, at most, `spread_us`: running time whose hours are not known exactly, "
		"`dropped`: records that nodes lost before they were told}, `oldest as_of more complete`}: `as_of` is up to when the one of those not over was counted that was "
		"not heard of for longest (null: all are over); `complete` is false where the window begins before `oldest`, rows are left out (`more`: over 10,000) or records were "
		"dropped. What the figures are: docs/decisions/0032. 429 RATE_LIMITED: 8 questions of the customer are being answered; 503 SCHEDULER_BUSY: 16 are" },
	{ "GET", "/v1/capacity", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_capacity,
		"How many more sandboxes of a shape fit now, per pool: found by filling a copy of the pool with the placement itself.",
		"query `pool` (all that the key reaches), `vcpus memoryMB diskSizeMB` (as a create's), `template` and `tenant` (whose it is, "
		"when it is not everybody's), `region`, `cpuClass`, `labels` (`K=V,K=V`); and what might be: `if_vcpus if_memoryMB if_diskSizeMB` "
		"(another shape), `if_overcommit` (percent), `if_nodes` (more of them, empty) of `if_node_cpus if_node_memoryMB if_node_diskMB "
		"if_node_sandboxes` (each as the pool's largest node by default); `replay` (`24h`, `7d`): what it would have done to the requests of "
		"that time; `if_vcpus` and so on are then of those of the shape that is named, `vcpus` and so on, of all where none is",
		"200 {`shape`, `if` (null where nothing was asked), `pools`: [{`pool customer overcommit_percent fits waiting nodes fitting "
		"excluded total used stops change if forecast replay`}], `as_of`}: `waiting` fit besides when start slots and back-offs are over; `excluded` are "
		"nodes that take none now, by constraint; `stops` says what each node stops at when no more fits and what is left there, by "
		"constraint or state {`by nodes memory_mib vcpus disk_mib sandboxes`}; `change`, what would make room for one more then; `if` "
		"{`fits waiting more`}; `forecast` {`verdict`: \"grows\", \"none\" (no trend; of a resource \"falls\" too), \"too_short\" (less than 7 days known), `by`, "
		"`runs_out earliest latest` (of `by`, the resource that runs out first; an interval of 95 %, `latest` null where it has no "
		"end), `resources`: [{`resource verdict days p level limit per_day per_day_low per_day_high runs_out earliest latest daily last_day`}]}: of the "
		"busiest hour of each of the last 30 days, which are `daily`, up to `last_day`, null where nothing is known; `replay` (null where it was not asked) {`from to requests unplaced`: what came and got no "
		"room then, `since complete`: from when on all is remembered, and whether that is all of the time, `life_s`: the life in the middle of those that ended, "
		"taken for what got no room (null: none ended), `now if` (null where nothing was asked): of the pool as it is and as it might be {`placed refused standing standing_refused "
		"first_refused`, `by`: what the nearest node lacked, of the first 1,000 refused, `peak` {`sandboxes memory_mib vcpus`}}}: nobody waits in it, and "
		"what sleeps keeps its room; `standing` are those that ran when the time began" },

	{ "GET", "/v1/templates", BY_USERS, SCOPE_TENANT, API_NO_BODY, api_template_list,
		"Templates of this tenant and everybody's.", "",
		"200 array of {`name shared version digest size created`}" },
	{ "PUT", "/v1/templates/{name}", BY_USERS, SCOPE_TENANT, API_STREAM, api_template_put,
		"Imports an image as the next version of a template.",
		"the squashfs image; header `X-Croft-Digest: sha256:<hex>` is compared with the bytes; query `shared=true` for the "
		"provider's operator: for every tenant",
		"201 as in the list, when bytes and record are durable; IMAGE_DIGEST_MISMATCH, IMAGE_TOO_LARGE" },

	{ "GET", "/v1/nodes", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_node_list,
		"Nodes of the operator's pools.", "", "200 array as of `GET /v1/nodes/{id}`" },
	{ "GET", "/v1/nodes/{id}", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_node_get,
		"One node.", "",
		"200 {`id pool hostname machine version cpuClass state schedulable revoked facts health labels joined heard images capacity "
		"kept space unschedulable telemetry takes_for clock_offset_ms clock_within_ms`}; `clock_offset_ms`: how far its clock is ahead of this "
		"one (negative: behind), wrong by at most `clock_within_ms`; null: it is not connected, or was not measured; the times of its records are "
		"corrected by it; `space`: [{`tenant used_mib`}], what its sandboxes, asleep ones too, and its snapshots "
		"take on the node's disk (blocks that two files share count twice); `tenant` null: nobody's" },
	{ "GET", "/v1/nodes/{id}/telemetry", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_node_telemetry,
		"Telemetry of one node: what was received, and its last records in order.", "query `after`: a sequence number",
		"200 {`counts`, `records`: [{`seq when what outcome sandbox took_ms code detail count`}]}: `count` is how many calls into the sandbox a record "
		"stands for, `took_ms` then their mean" },
	{ "POST", "/v1/nodes/{id}/revoke", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_node_revoke,
		"Revokes a node's key: it is told so by name and may do nothing more.", "", "204; 404" },
	{ "POST", "/v1/nodes/{id}/cordon", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_node_cordon,
		"Nothing more is placed there; what runs goes on.", "`why`", "200 the node; 404" },
	{ "POST", "/v1/nodes/{id}/uncordon", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_node_uncordon,
		"Ends a cordon and a drain.", "", "200 the node; 404" },
	{ "POST", "/v1/nodes/{id}/drain", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_node_drain,
		"Nothing more is placed there; what still runs at the deadline is ended. Each sandbox there gets the event NODE_DRAIN.",
		"`why`, `deadline_s` from now (3600; at most 30 days)", "200 the node; 404" },
	{ "PUT", "/v1/nodes/{id}/upgrade", BY_OPERATORS, SCOPE_CUSTOMER, API_STREAM, api_node_upgrade,
		"Offers a package to a node, whose owner's own configuration decides about it.",
		"the Debian package; header `X-Croft-Signature`: its .sig with `|` for each end of a line",
		"202 as of `GET`; NODE_UNREACHABLE" },
	{ "GET", "/v1/nodes/{id}/upgrade", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_node_upgrade_get,
		"What became of the package that was offered last.", "",
		"200 {`state` (none, offered, taken, refused), `operation digest offered failure`}: PACKAGE_UNSIGNED, PACKAGE_ALTERED, PACKAGE_OLDER, UPGRADE_NOT_PERMITTED" },
	{ "POST", "/v1/nodes/{id}/take", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_node_take,
		"Snapshots that the node's owner imports there from now on become the tenant's, for an hour or until the scheduler is started again; others that "
		"nobody knows are dropped by their node.",
		"`tenant`, one of the pool's customer; \"\": nobody's any more", "200 the node, with `takes_for`; 404" },
	{ "POST", "/v1/nodes/{id}/remove", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_node_remove,
		"Takes a node out for good: its key is revoked.",
		"`force`: also while sandboxes or snapshots are there; they are lost", "204; 404; 409 while it has sandboxes that run or are paused, or snapshots, and `force` is not true" },

	{ "POST", "/v1/customers", BY_PROVIDER, SCOPE_PROVIDER, API_JSON, api_customer_create,
		"Makes a customer.", "`name`", "201 as of `GET /v1/customers/{name}`; 409" },
	{ "GET", "/v1/customers", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_customer_list,
		"Customers: an operator sees its own, the provider's all.", "", "200 array as of `GET /v1/customers/{name}`" },
	{ "GET", "/v1/customers/{name}", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_customer_get,
		"One customer.", "", "200 {`name state created revoked pools tenants`}; 404" },
	{ "DELETE", "/v1/customers/{name}", BY_PROVIDER, SCOPE_PROVIDER, API_NO_BODY, api_customer_revoke,
		"Revokes a customer: its keys and its tenants' keys are refused from now on; sandboxes live out their time.", "", "204; 404" },

	{ "POST", "/v1/pools", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_pool_create,
		"Makes a pool.",
		"`name` (a customer's operator's begins with the customer's name and `-`), `customer`, `shared`, `cpu_overcommit_percent` (400), "
		"`replace` (\"never\", \"on-loss\"), `lost_after_ms`, `self_stop_after_ms` (on-loss: at least 10 s less than lost_after_ms), and, "
		"by the provider's operator alone, `responsibility` (\"managed\", \"self\") and `owners` {component: owner}",
		"201 as of `GET /v1/pools/{name}`; 409" },
	{ "GET", "/v1/pools", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_pool_list,
		"Pools.", "", "200 array as of `GET /v1/pools/{name}`" },
	{ "GET", "/v1/pools/{name}", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_pool_get,
		"One pool, with its responsibility table.", "",
		"200 {`name customer state shared cpu_overcommit_percent replace lost_after_ms self_stop_after_ms responsibility owners nodes "
		"created revoked`}; 404" },
	{ "PATCH", "/v1/pools/{name}", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_pool_change,
		"Changes what the body names.", "as of `POST /v1/pools`, without `name` and `customer`", "200 the pool; 404" },
	{ "DELETE", "/v1/pools/{name}", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_pool_revoke,
		"Revokes a pool: nothing is placed there and no node joins any more; what runs there goes on.", "", "204; 404" },

	{ "GET", "/v1/warm", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_warm_list,
		"Warm pools: microVMs that are kept ready, and how many are.", "", "200 array as of `PUT /v1/pools/{pool}/warm/{template}`" },
	{ "PUT", "/v1/pools/{pool}/warm/{template}", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_warm_set,
		"Says how many microVMs of a template are kept ready in a pool. A create of the same image and size takes one over. In the "
		"place of the template: a snapshot of `tenant`, by id or name; then they begin as it, on its node, and a create from it "
		"takes one over.",
		"`target` (0: none any more), `max_starts` (on their way at once; 2), `max_age_ms` (3600000), `vcpus`, `memoryMB`, "
		"`diskSizeMB` (as a create's), `tenant` (whose template, when it is not everybody's, or whose snapshot)",
		"200 {`pool template snapshot image vcpus memory_mib disk_mib target max_starts max_age_ms ready starting`}; 404" },

	{ "POST", "/v1/tenants", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_tenant_create,
		"Makes a tenant.",
		"`name` (a customer's operator's begins with the customer's name and `-`), `customer`, `quota` {`sandboxes`, `vcpus`, "
		"`memory_mib`, `starts_per_minute`, `paused`, `snapshots`, `kept_disk_mib` (of the last two); 0: no limit}, and, by the provider's operator alone, `weight` (1 to 1000; 1): its share of "
		"the turns when many wait for room",
		"201 as of `GET /v1/tenants/{name}`; 409" },
	{ "GET", "/v1/tenants", BY_WATCHERS, SCOPE_CUSTOMER, API_NO_BODY, api_tenant_list,
		"Tenants.", "", "200 array as of `GET /v1/tenants/{name}`" },
	{ "GET", "/v1/tenants/{name}", BY_ALL, SCOPE_REACH, API_NO_BODY, api_tenant_get,
		"One tenant: its quota and what it uses of it.", "",
		"200 {`name customer state weight quota used created revoked`}; 404" },
	{ "PATCH", "/v1/tenants/{name}", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_tenant_change,
		"Changes a tenant's quota: the members that the body names.", "`quota`, and, by the provider's operator alone, `weight`", "200 the tenant; 404" },
	{ "DELETE", "/v1/tenants/{name}", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_tenant_revoke,
		"Revokes a tenant: its keys are refused from now on; sandboxes live out their time, operators may end them.", "", "204; 404" },

	{ "POST", "/v1/keys", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_key_create,
		"Makes a key. The key itself is answered this once and kept hashed.",
		"`role` (tenant, customer-operator, customer-planner, provider-operator, provider-planner), `tenant` (for the role tenant), "
		"`customer`, `name` (a note)",
		"201 as of `GET /v1/keys/{id}`, and once `key`" },
	{ "GET", "/v1/keys", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_key_list,
		"Keys.", "", "200 array as of `GET /v1/keys/{id}`" },
	{ "GET", "/v1/keys/{id}", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_key_get,
		"One key.", "", "200 {`id role tenant customer name hint state created`}; 404" },
	{ "DELETE", "/v1/keys/{id}", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_key_revoke,
		"Revokes a key, at once.", "", "204; 404; 409 for the last provider operator's key" },

	{ "GET", "/v1/tokens", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_token_list,
		"Join tokens.", "", "200 array of {`id pool state labels created expires used_by adopt_tenant replaces`}" },
	{ "POST", "/v1/tokens", BY_OPERATORS, SCOPE_CUSTOMER, API_JSON, api_token_create,
		"Makes a join token for one node.",
		"`pool`, `ttl_s` (at most, and by default, limits.token_ttl), `labels` {string: string}, `endpoints` [tcp:// or tls:// address], "
		"`replaces` (a node whose host was set up anew: pool and labels are carried over, and when the token is used the old node is removed and its "
		"sandboxes end as HOST_REIMAGED), `adopt_tenant` (what runs on the node when it joins becomes this tenant's); all optional",
		"201 as in the list, and once `file`: what `croft-node join --token-file` reads" },
	{ "DELETE", "/v1/tokens/{id}", BY_OPERATORS, SCOPE_CUSTOMER, API_NO_BODY, api_token_delete,
		"Revokes a join token.", "", "204; 404" },
};
/* clang-format on */
const size_t api_routes_count = ARRAY_LEN(api_routes);

/* The sets that the table uses, as people name them. */
static const char *role_text(unsigned int roles)
{
	static const struct {
		unsigned int roles;
		const char *text;
	} texts[] = { { BY_ANYBODY, "none needed" }, { BY_ALL, "any" },
		{ BY_USERS, "any but planners'" }, { BY_OPERATORS, "operators'" },
		{ BY_WATCHERS, "operators' and planners'" },
		{ BY_PROVIDER, "provider operator's" },
		{ BY_PROVIDER_WATCHERS, "provider operator's and planner's" } };

	for (size_t i = 0; i < ARRAY_LEN(texts); i++)
		if (texts[i].roles == roles)
			return texts[i].text;
	return "?";
}

static const char *scope_text(enum api_scope scope)
{
	static const char *const texts[SCOPE_MAX_] = { [SCOPE_NONE] = "-",
		[SCOPE_TENANT] = "its tenant",
		[SCOPE_REACH] = "its tenant; operators: their customer; provider: all",
		[SCOPE_CUSTOMER] = "its customer; provider: all",
		[SCOPE_PROVIDER] = "all" };

	return texts[scope];
}

void api_write_doc(FILE *out)
{
	(void)fputs(
		"# The HTTP API of croft-scheduler\n\n"
		"Made by `croft-scheduler api-doc` from the table of routes (scheduler/server/api-route.c); a test keeps them equal.\n\n"
		"- **Key**: header `X-API-Key: croft_...` or `Authorization: Bearer croft_...`.\n"
		"- **Roles**: tenant, customer-operator, customer-planner, provider-operator, provider-planner. A planner reads what its "
		"operator reads and changes nothing. An operator's key may have a tenant besides and then acts as that tenant too.\n"
		"- **Scope**: what the call can see. What it cannot see is answered like what does not exist (404, or left out of a list).\n"
		"- **Rate**: answers carry `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset` (s) of the key; over it "
		"429 RATE_LIMITED with `Retry-After`.\n"
		"- **Idempotency-Key**: a header of every `POST` that makes something. The same key with the same request answers for what "
		"was made then, for 24 hours and over restarts; with another request it is 409 IDEMPOTENCY_CONFLICT. A start that failed frees "
		"its key. Secrets (`key`, `file`) are answered the first time alone.\n"
		"- **Errors**: `{\"code\": <HTTP status>, \"message\": \"...\", \"failure\": {...}}`; the failure record is described in "
		"failures.md.\n"
		"- **Age**: a list's answer carries `X-Croft-As-Of`: when the node of the entry that was not heard for longest spoke last, or "
		"now where no node was asked; each sandbox and node says its own. `GET /v1/nodes` carries `X-Croft-Nodes-Ready`, so that a "
		"list without a healthy node says so.\n"
		"- **Trace**: a request's `traceparent` (W3C) is the parent of what it causes, and every answer carries one.\n"
		"- Times are RFC 3339 UTC; durations carry their unit in the name.\n"
		"- Requests with the header `e2b-sandbox-id`, or for a host `<port>-<sandbox>.<domain>`, are relayed to the gateway of "
		"the sandbox's node: 502 SANDBOX_GONE when it has ended, 503 NODE_UNREACHABLE while its node "
		"is cut off. They need the sandbox's own `x-access-token`, no key.\n\n"
		"| request | key | scope | what |\n|---|---|---|---|\n",
		out);
	for (size_t i = 0; i < api_routes_count; i++)
		(void)fprintf(out, "| `%s %s` | %s | %s | %s |\n", api_routes[i].method,
			api_routes[i].pattern, role_text(api_routes[i].roles),
			scope_text(api_routes[i].scope), api_routes[i].summary);
	for (size_t i = 0; i < api_routes_count; i++) {
		const struct api_route *route = &api_routes[i];

		(void)fprintf(
			out, "\n## %s %s\n\n%s\n\n", route->method, route->pattern, route->summary);
		(void)fprintf(out, "- key: %s\n- scope: %s\n", role_text(route->roles),
			scope_text(route->scope));
		if (*route->request)
			(void)fprintf(out, "- takes: %s\n", route->request);
		(void)fprintf(out, "- answers: %s\n", route->response);
	}
}
