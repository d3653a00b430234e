import { type EnvValue, secretsOf, TenureError } from "@tenure/protocol";
import type { ReadSecrets } from "./contract.ts";
import type { Goal } from "./goal.ts";

/** The values of one deployment. They are kept in memory only. */
export interface ChildSecrets {
  /** The environment with the values in place of the references. Rejects while one of them cannot be had. */
  resolve(
    goal: Goal,
    env: Readonly<Record<string, EnvValue>>,
  ): Promise<Readonly<Record<string, string>>>;
  /** The text without the values, for an error that leaves this machine. */
  redact(text: string): string;
}

/** Shorter values would blank out words that are no secrets. */
const REDACTED_LENGTH_MIN = 6;

/**
 * Values are read for every start, so that the newest are used. Without a server the ones of the last start of the same
 * specification and generation are: a child that crashes during an outage starts again.
 */
export function createChildSecrets(read: ReadSecrets): ChildSecrets {
  let last: { key: string; values: Readonly<Record<string, string>> } | undefined;

  async function valuesFor(goal: Goal): Promise<Readonly<Record<string, string>>> {
    const { deploymentId, generation, key } = goal;
    try {
      const values = await read({ deploymentId, generation });
      last = { key, values };
      return values;
    } catch (error) {
      if (last?.key === key && error instanceof TenureError && error.retryable) return last.values;
      last = undefined;
      throw new Error(`waits for its secrets: ${(error as Error).message}`);
    }
  }

  return {
    async resolve(goal, env) {
      if (secretsOf(env).length === 0) return env as Readonly<Record<string, string>>;
      const values = await valuesFor(goal);
      const entries = Object.entries(env).map(([name, value]): [string, string] => {
        if (typeof value === "string") return [name, value];
        const secret = Object.hasOwn(values, value.secret) ? values[value.secret] : undefined;
        if (secret !== undefined) return [name, secret];
        // The specification changed between the list and this call; the next list has the new one.
        throw new Error(`waits for its secrets: the server sent no value of ${value.secret}`);
      });
      return Object.fromEntries(entries);
    },
    redact(text) {
      const values = Object.values(last?.values ?? {}).filter(
        ({ length }) => length >= REDACTED_LENGTH_MIN,
      );
      return values
        .sort((a, b) => b.length - a.length)
        .reduce((redacted, value) => redacted.replaceAll(value, "***"), text);
    },
  };
}
