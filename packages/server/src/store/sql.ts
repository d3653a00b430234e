import { createHash } from "node:crypto";

export interface Sql {
  readonly text: string;
  readonly values: readonly unknown[];
  /** One name per text: the server parses and plans each statement once per connection. */
  readonly name: string;
}

const prepared = new WeakMap<TemplateStringsArray, { text: string; name: string }>();

/** Turns `… ${id} …` into `… $1 …` plus its values, so that a value can never become SQL. */
export function sql(parts: TemplateStringsArray, ...values: unknown[]): Sql {
  let statement = prepared.get(parts);
  if (!statement) {
    const text = parts.reduce((query, part, index) => `${query}$${index}${part}`);
    statement = { text, name: createHash("sha1").update(text).digest("base64url") };
    prepared.set(parts, statement);
  }
  return { ...statement, values };
}

/** A jsonb parameter. Explicit because the drivers would send an array as a Postgres array. */
export function json(value: unknown): string {
  return JSON.stringify(value);
}
