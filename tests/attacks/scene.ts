import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ROLES } from "@tenure/protocol";
import { type Answer, type RunningServer, startServer } from "@tenure/testing/fleet/running-server";
import { scratchDirectory } from "@tenure/testing/scratch";

/** A token of the server under attack. */
export interface AttackToken {
  name: string;
  role: (typeof ROLES)[number];
  tenant?: string;
  /** Further fields of `[[auth.tokens]]`, such as `pools`. */
  scope?: Record<string, unknown>;
}

export interface AttackedServer extends RunningServer {
  /** What the token's holder sends as a bearer token. */
  secretOf(name: string): string;
  /** A request with the token of that name; `undefined` = without any. */
  as(name: string | undefined, method: string, path: string, body?: unknown): Promise<Answer>;
}

/** `tenure server` as a process of its own, on the embedded stores unless `env` says otherwise, with these tokens. */
export async function attackServer(
  tokens: AttackToken[],
  {
    env = {},
    settings = "",
    args = [],
  }: { env?: Record<string, string>; settings?: string; args?: string[] } = {},
): Promise<AttackedServer> {
  const directory = scratchDirectory("attack");
  const config = join(directory, "tenure.toml");
  writeFileSync(config, `${settings}\n${tokens.map(tokenTable).join("\n")}`, { mode: 0o600 });
  const server = await startServer({
    args: ["--config", config, "--data-dir", join(directory, "data"), ...args],
    env,
  });
  return {
    ...server,
    dataDir: join(directory, "data"),
    secretOf,
    as(name, method, path, body) {
      const headers = {
        ...(name !== undefined && { authorization: `Bearer ${secretOf(name)}` }),
        ...(body !== undefined && { "content-type": "application/json" }),
      };
      const init = { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) };
      return server.get(path, init);
    },
  };
}

const secretOf = (name: string): string => `${name}-secret-of-an-attack`;

function tokenTable({ name, role, tenant = "default", scope = {} }: AttackToken): string {
  const sha256 = createHash("sha256").update(secretOf(name)).digest("hex");
  const fields = Object.entries({ name, role, tenant, sha256, ...scope });
  return ["[[auth.tokens]]", ...fields.map(([key, value]) => `${key} = ${toml(value)}`)].join("\n");
}

/** Texts, numbers, booleans, lists and flat tables are written in TOML nearly as in JSON. */
function toml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(toml).join(", ")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const entries = Object.entries(value).map(
    ([key, one]) => `${JSON.stringify(key)} = ${toml(one)}`,
  );
  return `{ ${entries.join(", ")} }`;
}
