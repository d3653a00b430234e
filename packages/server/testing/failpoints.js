import { readFileSync, statSync, writeSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";

/**
 * Named places in the code where a test can make something happen. This file stands in for
 * `src/kernel/failpoint.ts`, which does nothing, under the export condition "tenure-test" only; it
 * is not part of the package.
 *
 *   TENURE_FAILPOINTS="nonce.before-commit=pause,submit.after-record=exit:1#3"
 *   TENURE_FAILPOINTS_FILE=path   the same text, read again when the file changes
 *
 * Actions: `pause` (says so on stderr, then stops this process until SIGCONT), `exit:CODE`, `kill`
 * or `kill:MS` (SIGKILL to itself, at once or after a while), `error:MESSAGE`, `delay:MS`. `#n` means only the n-th time since it was armed.
 *
 * @typedef {{ action: string, argument: string, nth: number | undefined, hits: number }} Rule
 */

/** @type {Rule} */
const KILL = { action: "kill", argument: "", nth: undefined, hits: 0 };

/** @type {Map<string, () => unknown>} */
const armedHere = new Map();
const fromEnvironment = parse(process.env.TENURE_FAILPOINTS ?? "");
/** @type {{ version: string, rules: Map<string, Rule> }} */
let fromFile = { version: "", rules: new Map() };

export const hasFailpoints = true;

/** @param {string} name */
export async function failpoint(name) {
  await armedHere.get(name)?.();
  const rule = readControlFile().get(name) ?? fromEnvironment.get(name);
  if (rule === undefined) return;
  rule.hits += 1;
  if (rule.nth === undefined || rule.nth === rule.hits) await act(name, rule);
}

/**
 * For tests in the same process: `action` runs, and may throw, at every hit until `disarmAll`.
 * @param {string} name
 * @param {() => unknown} action
 */
export function armFailpoint(name, action) {
  armedHere.set(name, action);
}

export function disarmAll() {
  armedHere.clear();
}

/**
 * @param {string} name
 * @param {Rule} rule
 * @returns {unknown}
 */
function act(name, { action, argument }) {
  switch (action) {
    case "pause":
      // Synchronous, and first: whoever waits for this line then finds the process stopped.
      writeSync(2, `${JSON.stringify({ msg: `failpoint ${name} reached`, failpoint: name })}\n`);
      return process.kill(process.pid, "SIGSTOP");
    case "exit":
      return process.exit(Number(argument));
    case "kill":
      // What was begun before gets out meanwhile; what comes after this place is never begun.
      if (argument !== "") return wait(Number(argument)).then(() => act(name, KILL));
      return process.kill(process.pid, "SIGKILL");
    case "delay":
      return wait(Number(argument));
    case "error":
      throw new Error(argument);
    default:
      throw new Error(`failpoint ${name} has no action "${action}"`);
  }
}

/** @returns {Map<string, Rule>} */
function readControlFile() {
  const path = process.env.TENURE_FAILPOINTS_FILE;
  if (!path) return fromFile.rules;
  const stat = statSync(path, { throwIfNoEntry: false, bigint: true });
  const version = stat === undefined ? "" : `${stat.ino}:${stat.mtimeNs}:${stat.size}`;
  if (version !== fromFile.version) {
    fromFile = { version, rules: parse(stat === undefined ? "" : readFileSync(path, "utf8")) };
  }
  return fromFile.rules;
}

/** @param {string} text */
function parse(text) {
  const rule = /^(?<name>[^=]+)=(?<action>[a-z]+)(?::(?<argument>.*?))?(?:#(?<nth>\d+))?$/;
  const parts = text
    .split(/[,\n]/)
    .map((part) => part.trim())
    .filter((part) => part !== "");
  return new Map(
    parts.map((part) => {
      const { name, action, argument = "", nth } = rule.exec(part)?.groups ?? {};
      if (!name || !action) throw new Error(`not a failpoint: "${part}"`);
      return [name, { action, argument, nth: nth ? Number(nth) : undefined, hits: 0 }];
    }),
  );
}
