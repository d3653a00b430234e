import { createDatabase, type TestDatabase } from "@tenure/testing/stores/database";
import { stores } from "@tenure/testing/stores/stores";
import type { App } from "../src/app.ts";
import { startTestApp } from "./test-app.ts";

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

/** An instance in this process that can be asked; settings by their environment names. */
export async function openApp(uri: string, env: Record<string, string> = {}): Promise<TestApp> {
  const app = await startTestApp({ postgresUri: uri, env });
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
