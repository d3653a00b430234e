import * as z from "zod";
import { Count, DeploymentId, Tenant, Timestamp } from "../formats.ts";

/** Without a slash or a space, because it is part of a path and of messages. */
export const SecretName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/, "must be 1 to 128 of A-Z a-z 0-9 . _ -");
export type SecretName = z.infer<typeof SecretName>;

/** In UTF-8. A variable of a Linux process has at most 128 KiB. */
export const SECRET_BYTES_MAX = 65_536;

/** In place of a value of `env`: the value of this secret, in the tenant of the deployment. */
export const SecretRef = z.strictObject({ secret: z.string() });
export type SecretRef = z.infer<typeof SecretRef>;

/** A value of `env` as it is stored. */
export const EnvValue = z.union([z.string(), SecretRef]);
export type EnvValue = z.infer<typeof EnvValue>;

/** The tag of a node-unit that gets the values of secrets by `deployment.secrets`. Others run no deployment that has one. */
export const SECRETS_TAG = "node_unit_secrets";

/** The names of the secrets that `env` refers to, each once. */
export function secretsOf(env: Readonly<Record<string, EnvValue>>): string[] {
  const names = Object.values(env).flatMap((value) =>
    typeof value === "string" ? [] : [value.secret],
  );
  return [...new Set(names)];
}

/** A secret without its value, which no answer has. */
export const SecretView = z.object({
  tenant: Tenant,
  name: z.string(),
  /** Higher with each new value; not changed by a new key. */
  version: Count,
  /** Names the key that the value is encrypted with. */
  key_id: z.string(),
  /** The deployments that refer to it. */
  used_by: z.array(z.object({ id: DeploymentId, name: z.string() })),
  created_at: Timestamp,
  /** When the value was set. */
  updated_at: Timestamp,
});
export type SecretView = z.infer<typeof SecretView>;

/** One page of a rotation. */
export const SecretRotation = z.object({
  /** The key that new values are encrypted with. */
  key_id: z.string(),
  rotated: Count,
  /** Those that had the key already. */
  current: Count,
  /** Those that no key of this instance opens. They were left as they are. */
  failed: z.array(z.object({ tenant: z.string(), name: z.string(), reason: z.string() })),
  /** There are more secrets: send it again with this as `cursor`. */
  next_cursor: z.string().nullable(),
});
export type SecretRotation = z.infer<typeof SecretRotation>;
