/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of routes, and docs/api.md made from it. Whatever a path can do stands in its row and nowhere else.
 */
#include <stdio.h>
#include <string.h>

#include "server/api.h"

#define CREATE_BODY                                                                                                    \
	"`templateID` (\"base\"), `timeout` s, `metadata` {string: string}, `envVars` {string: string}, `vcpus` or "   \
	"`cpuCount` (1 to 32), `memoryMB`, `diskSizeMB`, `setupCommand` (run with `sh -c` before it is ready), "       \
	"`setupTimeoutMs`, `secure`, `pool`, `queueTimeoutMs` (longest wait for room; 0: none). All optional; others " \
	"are ignored."
#define SANDBOX_ANSWER                                                                             \
	"Sandbox: `sandboxID templateID clientID alias envdVersion domain envdAccessToken trafficAccessToken`"
#define DETAIL_ANSWER                                                                                             \
	"the Sandbox's members and `startedAt endAt state cpuCount memoryMB diskSizeMB metadata lifecycle`, and " \
	"`croft` {`state node_state as_of certain stages`}"

/* clang-format off */
const struct api_route api_routes[] = {
	{ "GET", "/health", ROLE_NONE, API_NO_BODY, api_health,
		"Whether the scheduler serves.", "",
		"200 {`status`: \"ok\", `version`, `lineage`}; 503 with `status` \"store-failed\" while the store cannot be written." },
	{ "GET", "/metrics", ROLE_PROVIDER, API_NO_BODY, api_metrics,
		"Prometheus text.", "", "200 `text/plain`" },
	{ "GET", "/v1/whoami", ROLE_TENANT, API_NO_BODY, api_whoami,
		"What this key is.", "", "200 {`role`, `tenant`, `customer`}" },

	{ "POST", "/v2/sandboxes", ROLE_TENANT, API_JSON, api_sandbox_create,
		"Creates a sandbox and waits until it is ready (E2B).", CREATE_BODY, "201 " SANDBOX_ANSWER },
	{ "POST", "/sandboxes", ROLE_TENANT, API_JSON, api_sandbox_create,
		"The same (E2B, older path).", CREATE_BODY, "201 " SANDBOX_ANSWER },
	{ "POST", "/v1/sandboxes", ROLE_TENANT, API_JSON, api_sandbox_create_async,
		"Creates a sandbox and answers as soon as it is placed and recorded; watch `GET /v1/sandboxes/{id}`.",
		CREATE_BODY, "202 " SANDBOX_ANSWER ", and `id`, `state`: \"starting\"" },
	{ "GET", "/v2/sandboxes", ROLE_TENANT, API_NO_BODY, api_sandbox_list,
		"Lists running and paused sandboxes (E2B).",
		"query `state` (comma-joined: starting, running, paused, stopping), `metadata` (as the SDK encodes it), `limit` (100), `nextToken`",
		"200 array of SandboxDetail; the next page's token in the header `x-next-token`" },
	{ "GET", "/sandboxes", ROLE_TENANT, API_NO_BODY, api_sandbox_list,
		"The same (E2B, older path).", "as above", "as above" },
	{ "GET", "/v1/sandboxes", ROLE_TENANT, API_NO_BODY, api_sandbox_list_v1,
		"Lists live sandboxes with croft's own members.", "query as above; every live state is shown by default",
		"200 array as of `GET /v1/sandboxes/{id}`" },
	{ "GET", "/sandboxes/{id}", ROLE_TENANT, API_NO_BODY, api_sandbox_get,
		"One sandbox (E2B).", "", "200 SandboxDetail: " DETAIL_ANSWER "; 404 when it has ended" },
	{ "GET", "/v1/sandboxes/{id}", ROLE_TENANT, API_NO_BODY, api_sandbox_get_v1,
		"One sandbox, live or ended, with its stages and its failure record.",
		"query `wait_ms` (to 60000) and `after` (a `version`): answers when the version is another one or the time is over",
		"200 {`id state internal_state node stage generation incarnation version template image vcpus memory_mib disk_mib "
		"timeout_s metadata created started ends ended end_reason attempts trace operation guest_boot_id node_state as_of "
		"certain stages failure`}" },
	{ "DELETE", "/sandboxes/{id}", ROLE_TENANT, API_NO_BODY, api_sandbox_delete,
		"Ends a sandbox (E2B).", "", "204 when it is recorded; 404 when there is none, or when it is stopping already" },
	{ "DELETE", "/v1/sandboxes/{id}", ROLE_TENANT, API_NO_BODY, api_sandbox_delete_v1,
		"Ends a sandbox, in whatever state it is.", "", "204 when it is recorded, also while it is stopping; 404" },
	{ "POST", "/sandboxes/{id}/timeout", ROLE_TENANT, API_JSON, api_sandbox_timeout,
		"Sets the time that is left (E2B).", "`timeout` s from now, 1 and more", "204 when the node did it; 404" },
	{ "POST", "/v2/sandboxes/{id}/connect", ROLE_TENANT, API_JSON, api_sandbox_connect,
		"Connects to a running sandbox (E2B); a paused one cannot be resumed yet.", "`timeout` s, optional",
		"200 " SANDBOX_ANSWER "; 404" },
	{ "POST", "/sandboxes/{id}/connect", ROLE_TENANT, API_JSON, api_sandbox_connect,
		"The same (E2B, older path).", "as above", "as above" },
	{ "POST", "/v1/explain", ROLE_TENANT, API_JSON, api_explain,
		"How a create with this body would be placed now, without placing it.", CREATE_BODY,
		"200 {`nodes fitting excluded nearest lacking asked available largest largest_total cause change`}: how many nodes each "
		"constraint excludes, what the nearest one lacks, and what would have to change" },
	{ "GET", "/v1/stages", ROLE_TENANT, API_NO_BODY, api_stages,
		"The table of stages of this tenant; with `sandbox`, the records of one, live or ended.",
		"query `sandbox`; `scope=all` for the provider's operator: of all tenants",
		"200 {`stages`: [{`stage what attempts ok failed skipped success p50_ms p90_ms p99_ms`}], `product`: the success rates "
		"of a start multiplied}, or {`sandbox state trace attempts records failure`}" },

	{ "GET", "/v1/templates", ROLE_TENANT, API_NO_BODY, api_template_list,
		"Templates of this tenant and everybody's.", "",
		"200 array of {`name shared version digest size created`}" },
	{ "PUT", "/v1/templates/{name}", ROLE_TENANT, API_STREAM, api_template_put,
		"Imports an image as the next version of a template.",
		"the squashfs image; header `X-Croft-Digest: sha256:<hex>` is compared with the bytes; query `shared=true` for the "
		"provider's operator: for every tenant",
		"201 as in the list, when bytes and record are durable; IMAGE_DIGEST_MISMATCH, IMAGE_TOO_LARGE" },

	{ "GET", "/v1/nodes", ROLE_CUSTOMER, API_NO_BODY, api_node_list,
		"Nodes of the operator's pools.", "", "200 array as of `GET /v1/nodes/{id}`" },
	{ "GET", "/v1/nodes/{id}", ROLE_CUSTOMER, API_NO_BODY, api_node_get,
		"One node.", "",
		"200 {`id pool hostname machine version state schedulable revoked facts labels joined heard images capacity "
		"unschedulable telemetry`}" },
	{ "GET", "/v1/nodes/{id}/telemetry", ROLE_CUSTOMER, API_NO_BODY, api_node_telemetry,
		"Telemetry of one node: what was received, and its last records in order.", "query `after`: a sequence number",
		"200 {`counts`, `records`: [{`seq when what outcome sandbox took_ms code`}]}" },
	{ "POST", "/v1/nodes/{id}/revoke", ROLE_CUSTOMER, API_NO_BODY, api_node_revoke,
		"Revokes a node's key: it is told so by name and may do nothing more.", "", "204; 404" },
	{ "GET", "/v1/tokens", ROLE_CUSTOMER, API_NO_BODY, api_token_list,
		"Join tokens.", "", "200 array of {`id pool state labels created expires used_by`}" },
	{ "POST", "/v1/tokens", ROLE_CUSTOMER, API_JSON, api_token_create,
		"Makes a join token for one node.",
		"`pool`, `ttl_s` (at most, and by default, limits.token_ttl), `labels` {string: string}, `endpoints` [tcp:// address]; "
		"all optional",
		"201 as in the list, and once `file`: what `croft-node join --token-file` reads" },
	{ "DELETE", "/v1/tokens/{id}", ROLE_CUSTOMER, API_NO_BODY, api_token_delete,
		"Revokes a join token.", "", "204; 404" },
};
/* clang-format on */
const size_t api_routes_count = ARRAY_LEN(api_routes);

static const char *role_text(enum role role)
{
	static const char *const texts[ROLE_MAX_] = { [ROLE_NONE] = "none needed",
		[ROLE_TENANT] = "any that has a tenant",
		[ROLE_CUSTOMER] = "customer's or provider's operator",
		[ROLE_PROVIDER] = "provider's operator" };

	return texts[role];
}

void api_write_doc(FILE *out)
{
	(void)fputs(
		"# The HTTP API of croft-scheduler\n\n"
		"Made by `croft-scheduler api-doc` from the table of routes (scheduler/server/api-route.c); a test keeps them equal.\n\n"
		"- **Key**: header `X-API-Key: croft_...` or `Authorization: Bearer croft_...`.\n"
		"- **Errors**: `{\"code\": <HTTP status>, \"message\": \"...\", \"failure\": {...}}`; the failure record is described in "
		"failures.md.\n"
		"- **Trace**: a request's `traceparent` (W3C) is the parent of what it causes, and every answer carries one.\n"
		"- What belongs to another tenant is answered like what does not exist.\n"
		"- Times are RFC 3339 UTC; durations carry their unit in the name.\n"
		"- Requests with the header `e2b-sandbox-id`, or for a host `<port>-<sandbox>.<domain>`, are relayed to the gateway of "
		"the sandbox's node (its API, ports and files): 502 SANDBOX_GONE when it has ended, 503 NODE_UNREACHABLE while its node "
		"is cut off. They need the sandbox's own `x-access-token`, no key.\n\n"
		"| request | key | what |\n|---|---|---|\n",
		out);
	for (size_t i = 0; i < api_routes_count; i++)
		(void)fprintf(out, "| `%s %s` | %s | %s |\n", api_routes[i].method,
			api_routes[i].pattern, role_text(api_routes[i].role),
			api_routes[i].summary);
	for (size_t i = 0; i < api_routes_count; i++) {
		const struct api_route *route = &api_routes[i];

		(void)fprintf(
			out, "\n## %s %s\n\n%s\n\n", route->method, route->pattern, route->summary);
		(void)fprintf(out, "- key: %s\n", role_text(route->role));
		if (*route->request)
			(void)fprintf(out, "- takes: %s\n", route->request);
		(void)fprintf(out, "- answers: %s\n", route->response);
	}
}
