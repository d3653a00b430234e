import * as z from "zod";
import { Tenant, text } from "../formats.ts";
import { API_PREFIX, ListQuery, listOf, QueryFlag, type Route } from "../http.ts";
import { SECRET_BYTES_MAX, SecretName, SecretRotation, SecretView } from "../secrets/secret.ts";

const PATH = `${API_PREFIX}/secrets`;

const params = z.object({ name: SecretName });

const SecretText = text(SECRET_BYTES_MAX)
  .min(1)
  .refine(
    (value) => new TextEncoder().encode(value).length <= SECRET_BYTES_MAX,
    `must be at most ${SECRET_BYTES_MAX} bytes`,
  );

export const SECRET_ROUTES = {
  listSecrets: {
    method: "GET",
    path: PATH,
    roles: ["admin", "viewer"],
    summary: "List secrets by name, without their values.",
    query: ListQuery,
    reply: listOf(SecretView),
  },
  setSecret: {
    method: "PUT",
    path: `${PATH}/:name`,
    roles: ["admin"],
    summary: "Set the value of a secret; deployments that refer to it are restarted.",
    params,
    body: z.object({
      value: SecretText,
      /** The tenant of the caller, or any with a token of all tenants. */
      tenant: Tenant.optional(),
    }),
    reply: SecretView,
  },
  removeSecret: {
    method: "DELETE",
    path: `${PATH}/:name`,
    roles: ["admin"],
    summary: "Remove a secret; with force also one that deployments refer to.",
    params,
    query: z.object({ force: QueryFlag.optional() }),
    statuses: [204],
  },
  rotateSecrets: {
    method: "POST",
    path: `${PATH}/rotate`,
    roles: ["admin"],
    summary: "Encrypt secrets again with the first key of secret_key_file; nothing is restarted.",
    query: ListQuery,
    reply: SecretRotation,
  },
} as const satisfies Record<string, Route>;
