import { type SecretRotation, type SecretView, TenureError } from "@tenure/protocol";
import { type Act, recorded } from "../audit/actor.ts";
import type { Db } from "../store/db.ts";
import type { Keyring } from "./key-file.ts";
import { type SecretKey, seal, unseal } from "./sealing.ts";
import {
  deleteSecret,
  listSealed,
  listSecrets,
  nextVersion,
  putSecret,
  readSealed,
  resealSecret,
  type SealedSecret,
  type SecretFilter,
  type SecretRow,
  spreadVersions,
} from "./secret-store.ts";

export interface SecretsOptions {
  db: Db;
  instanceId: string;
  keyring: Keyring;
}

interface By {
  act?: Act | undefined;
}

export type Secrets = ReturnType<typeof createSecrets>;

/** Why a deployment cannot get one of its secrets from this instance. */
export interface SecretProblem {
  code: "secret_missing" | "secret_unreadable" | "secret_key_missing";
  message: string;
}

/** The secrets of all tenants: values go in by `set`, and out only to the node that runs a deployment (`open`). */
export function createSecrets({ db, instanceId, keyring }: SecretsOptions) {
  /** The key that encrypts. */
  function firstKey(): SecretKey {
    const [first] = keyring.keys();
    if (first) return first;
    throw new TenureError("SECRET_KEY_MISSING", { instance_id: instanceId });
  }

  const read = (secret: SealedSecret) => decrypt(secret, keyring.keys(), instanceId);

  async function rotateOne(secret: SealedSecret, first: SecretKey) {
    if (secret.key_id === first.id) return "current";
    const found = read(secret);
    if ("reason" in found) return found.reason;
    const sealed = seal(found.value, secret, first).toString("base64");
    const next = { ...secret, key_id: first.id, sealed, formerKeyId: secret.key_id };
    // Not stored: another value was set meanwhile, with the first key of its instance.
    return (await resealSecret(db, next)) ? "rotated" : "current";
  }

  return {
    list: async (filter: SecretFilter) => (await listSecrets(db, filter)).map(renderSecret),

    async set(
      { act }: By,
      { tenant, name, value }: { tenant: string; name: string; value: string },
    ): Promise<SecretView> {
      const key = firstKey();
      const version = await nextVersion(db);
      const sealed = seal(value, { tenant, name, version }, key).toString("base64");
      await db.transaction((tx) =>
        recorded(tx, act, {
          async write() {
            await putSecret(tx, { tenant, name, version, key_id: key.id, sealed });
            await spreadVersions(tx, { tenant, name });
          },
          subjectOf: () => name,
        }),
      );
      const [row] = await listSecrets(db, { tenants: [tenant], name, limit: 1 });
      if (!row) throw new TenureError("NOT_FOUND", { what: "secret", id: name });
      return renderSecret(row);
    },

    async remove({ act }: By, secret: { tenant: string; name: string; force: boolean }) {
      const { tenant, name } = secret;
      const isDeleted = await recorded(db, act, {
        write: (tx) => deleteSecret(tx, secret),
        subjectOf: (deleted) => (deleted ? name : undefined),
      });
      if (isDeleted) return;
      const [row] = await listSecrets(db, { tenants: [tenant], name, limit: 1 });
      if (!row) throw new TenureError("NOT_FOUND", { what: "secret", id: name });
      throw new TenureError("CONFLICT", { reason: `secret ${name} is used by ${usersOf(row)}` });
    },

    /** Encrypts a page of secrets again with the first key. One that cannot be read does not stop the others. */
    async rotate(filter: SecretFilter): Promise<Omit<SecretRotation, "next_cursor"> & LastOfPage> {
      const first = firstKey();
      const page = await listSealed(db, filter);
      const done = { key_id: first.id, rotated: 0, current: 0, failed: [] as Failed[] };
      for (const secret of page) {
        const outcome = await rotateOne(secret, first);
        const { tenant, name } = secret;
        if (outcome === "rotated" || outcome === "current") done[outcome] += 1;
        else done.failed.push({ tenant, name, reason: outcome });
      }
      return { ...done, last: page.length === filter.limit ? page.at(-1) : undefined };
    },

    /** Those of these names that the tenant has not. */
    async missing(tenant: string, names: readonly string[]): Promise<string[]> {
      if (names.length === 0) return [];
      const found = new Set((await readSealed(db, tenant, names)).map(({ name }) => name));
      return names.filter((name) => !found.has(name));
    },

    /** Decrypts the values of these names. Throws for the first one that is missing or cannot be read. */
    open(sealed: readonly SealedSecret[], names: readonly string[]): Record<string, string> {
      if (names.length > 0) firstKey();
      const entries = names.map((name) => {
        const secret = sealed.find((one) => one.name === name);
        if (!secret) throw new TenureError("NOT_FOUND", { what: "secret", id: name });
        const found = read(secret);
        if ("reason" in found) throw new TenureError("SECRET_UNREADABLE", { name, ...found });
        return [name, found.value] as const;
      });
      return Object.fromEntries(entries);
    },

    /** What keeps a deployment from getting these secrets here. */
    async problems(tenant: string, names: readonly string[]): Promise<SecretProblem[]> {
      if (names.length === 0) return [];
      const sealed = await readSealed(db, tenant, names);
      const hasKey = keyring.keys().length > 0;
      const noKey: SecretProblem = {
        code: "secret_key_missing",
        message: `instance ${instanceId} has no secret_key_file, so it gives no secret to a node that is connected to it`,
      };
      const problems = names.flatMap((name): SecretProblem[] => {
        const secret = sealed.find((one) => one.name === name);
        if (!secret) return [missingProblem(tenant, name)];
        const found = hasKey ? read(secret) : { value: "" };
        if ("value" in found) return [];
        const message = `secret ${name} cannot be decrypted: ${found.reason}; its next start waits`;
        return [{ code: "secret_unreadable", message }];
      });
      return hasKey ? problems : [noKey, ...problems];
    },

    /** Brings the versions of secrets to deployments that were written at the same moment as a value. */
    spread: (ageSeconds: number | undefined) => spreadVersions(db, { ageSeconds }),
  };
}

/** The value, or why there is none. */
function decrypt(
  secret: SealedSecret,
  keys: readonly SecretKey[],
  instanceId: string,
): { value: string } | { reason: string } {
  const key = keys.find(({ id }) => id === secret.key_id);
  if (!key) return { reason: `instance ${instanceId} has no key ${secret.key_id.slice(0, 64)}` };
  const value = unseal(Buffer.from(secret.sealed, "base64"), secret, key);
  if (value !== undefined) return { value };
  return { reason: "its row was changed outside Tenure; set its value again" };
}

interface LastOfPage {
  last: SealedSecret | undefined;
}

type Failed = SecretRotation["failed"][number];

const missingProblem = (tenant: string, name: string): SecretProblem => ({
  code: "secret_missing",
  message: `secret ${name} does not exist in tenant ${tenant}; its next start waits for it`,
});

const NAMED_MAX = 5;

function usersOf({ used_by }: SecretRow): string {
  const names = used_by.slice(0, NAMED_MAX).map(({ name }) => name);
  const more = used_by.length > NAMED_MAX ? ` and ${used_by.length - NAMED_MAX} more` : "";
  return `${names.join(", ")}${more}; with force it is removed anyway: their children go on, and the next start waits`;
}

const renderSecret = ({ created_at, updated_at, ...row }: SecretRow): SecretView => ({
  ...row,
  created_at: created_at.toISOString(),
  updated_at: updated_at.toISOString(),
});
