import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROUTE_LIST } from "@tenure/protocol";
import { Redis } from "ioredis";
import type { Client } from "pg";
import type { Page } from "playwright-core";
import { asOther, otherUser } from "./other-user.ts";
import type { AttackedServer } from "./scene.ts";

/** What was read where a value may have been written down: the texts by the name of the place. */
export type Places = [name: string, text: string][];

/** The value as it is, in hex, and in base64 wherever it begins within a longer text. */
export function formsOf(value: string): string[] {
  const base64 = [0, 1, 2].map((before) => {
    const text = Buffer.from("x".repeat(before) + value).toString("base64");
    // Without the characters that neighbours change.
    return text.slice(before === 0 ? 0 : 4, -4);
  });
  return [value, Buffer.from(value).toString("hex"), ...base64];
}

export const placesWith = (value: string, places: Places): string[] => {
  const forms = formsOf(value);
  return places
    .filter(([, text]) => forms.some((form) => text.includes(form)))
    .map(([name]) => name);
};

/** Every row of every table and view, and the statements that Postgres shows of its connections. */
export async function tables(db: Client): Promise<Places> {
  const { rows } = await db.query<{ name: string }>(
    `select format('%I.%I', nspname, relname) as name
       from pg_class join pg_namespace on pg_namespace.oid = relnamespace
      where relkind in ('r', 'p', 'm', 'v') and nspname not in ('pg_catalog', 'information_schema', 'pg_toast')`,
  );
  const places: Places = [];
  for (const { name } of [...rows, { name: "pg_catalog.pg_stat_activity" }]) {
    const { rows: all } = await db.query(`select one::text as text from ${name} as one`);
    places.push([`table ${name}`, all.map(({ text }) => text).join("\n")]);
  }
  return places;
}

/** Every key of the fleet, by the command of its type: what DUMP returns is compressed. */
export async function redisKeys(url: string, prefix: string): Promise<Places> {
  const redis = new Redis(url);
  const readers: Record<string, (key: string) => Promise<unknown>> = {
    string: (key) => redis.get(key),
    hash: (key) => redis.hgetall(key),
    list: (key) => redis.lrange(key, 0, -1),
    set: (key) => redis.smembers(key),
    zset: (key) => redis.zrange(key, "0", "-1"),
    stream: (key) => redis.xrange(key, "-", "+"),
  };
  const places: Places = [];
  try {
    for await (const keys of redis.scanStream({ match: `${prefix}*`, count: 1_000 }))
      for (const key of keys as string[]) {
        const type = await redis.type(key);
        const value = type === "none" ? "" : await readers[type]!(key);
        places.push([`redis ${key}`, `${key} ${JSON.stringify(value)}`]);
      }
    return places;
  } finally {
    redis.disconnect();
  }
}

/** Every route that reads, with a deployment for its parameter. */
export async function answers(
  server: AttackedServer,
  token: string,
  { id, job }: { id: string; job: string },
): Promise<Places> {
  const routes = ROUTE_LIST.filter(({ name, method }) => method === "GET" && name !== "openStream");
  return Promise.all(
    routes.map(async ({ path }): Promise<[string, string]> => {
      const parameter = path.includes("/jobs/") ? job : id;
      const filled = path.replace(":id", parameter).replace(":signer", "eip155:1:x");
      const { body } = await server.as(token, "GET", `${filled}?generation=1`);
      return [`answer of ${path} for ${id}`, JSON.stringify(body)];
    }),
  );
}

export function filesBelow(directory: string): Places {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries
    .filter((one) => one.isFile())
    .map((one) => join(one.parentPath, one.name))
    .map((path) => [`file ${path}`, readFileSync(path, "latin1")]);
}

const pids = () => readdirSync("/proc").filter((name) => /^\d+$/.test(name));

function ofProcess(pid: string, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "latin1");
  } catch {
    return ""; // It ended meanwhile, or is another user's.
  }
}

/** The arguments of every process, which every user of the machine can read. */
export const commandLines = (): Places =>
  pids().map((pid) => [`arguments of ${pid}`, ofProcess(pid, "cmdline")]);

/** The environment of every process that is not a child of a deployment; as root, of those of all users. */
export const environments = (): Places =>
  pids()
    .map((pid): [string, string] => [`environment of ${pid}`, ofProcess(pid, "environ")])
    .filter(([, text]) => !text.includes("TENURE_DEPLOYMENT_ID="));

/** What another user of the machine sees of all processes; nothing without root, which is needed to be another user. */
export async function asAnotherUser(): Promise<Places> {
  if (!otherUser) return [];
  const script = "ps axeww; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done";
  return [["processes as another user", await asOther(script)]];
}

/** Runs in the browser. */
const SEEN = `[
  document.documentElement.outerHTML,
  ...[...document.querySelectorAll("input, textarea")].map((field) => field.value),
  JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]),
].join("\\n")`;

/** What a browser has of each page: its elements, what stands in its fields, and what it stores. */
export async function pages(page: Page, url: string, paths: readonly string[]): Promise<Places> {
  const places: Places = [];
  for (const path of paths) {
    await page.goto(`${url}${path}`);
    await page.locator(".shell").waitFor();
    await page.waitForLoadState("load");
    await page.waitForTimeout(1_500);
    const text = await page.evaluate<string>(SEEN);
    places.push([`page ${path}`, text]);
  }
  return places;
}
