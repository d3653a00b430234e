import { createDatabase, type TestDatabase } from "../../../tests/support/database.ts";
import { stores } from "../../../tests/support/stores.ts";
import { type App, startApp } from "../src/app.ts";
import { readConfig } from "../src/config.ts";
import { silentLog } from "../src/kernel/log.ts";

export interface TestApp extends App {
  /** Sends JSON and gives the status and the parsed answer. */
  ask(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
  ): Promise<{ status: number; body: Answer }>;
}

/** Whatever the server answered; tests say what they expect of it. */
// biome-ignore lint/suspicious/noExplicitAny: a test reads answers of every shape
export type Answer = any;

/** A database of its own on the run's Postgres, with the real clock: several servers in this process share it. */
export async function openAppDatabase(): Promise<TestDatabase> {
  return createDatabase(stores().postgresAdminUri);
}

/** A whole server in this process, on a free port, with settings by their environment names. */
export async function openApp(uri: string, env: Record<string, string> = {}): Promise<TestApp> {
  const config = readConfig({
    env: { POSTGRES_URI: uri, TENURE_SERVER_PORT: "0", ...env },
  });
  const app = await startApp({ config, log: silentLog, onFatal: () => {} });
  return {
    ...app,
    async ask(method, path, body, headers = {}) {
      const response = await fetch(new URL(path, app.url), {
        method,
        headers: { "content-type": "application/json", ...headers },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      return { status: response.status, body: text.startsWith("{") ? JSON.parse(text) : text };
    },
  };
}
