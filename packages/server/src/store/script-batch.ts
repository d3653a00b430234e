import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { atEndOfTick } from "../kernel/tick.ts";
import { CLOCK, SCRIPTS, type SomeScript } from "./script.ts";

/** One script that was started in this tick. */
export interface ScriptCall {
  script: SomeScript;
  keys: string[];
  /** The JSON object, then the texts. */
  argv: string[];
}

/** A batch to evaluate: `EVALSHA sha keys… argv…`, or `EVAL lua` on a server without the script. */
export interface Evaluation {
  lua: string;
  sha: string;
  keys: string[];
  argv: string[];
}

/** The outcome of one call of a batch: its reply, or the error that Redis raised in it. */
export type CallReply = unknown;

/** A batch of this many calls keeps Redis busy for some milliseconds; other clients run in between. */
const CALLS_MAX = 256;

/**
 * Collects the scripts that are started in one tick of the event loop and runs them in one round trip, in that order.
 *
 * Any command costs the client library about ten microseconds, and Redis a fraction of that; a job takes a dozen
 * commands. Pipelining saves round trips, not commands. So one command runs them all: a script that contains every
 * script. A call that fails does not affect the others.
 *
 * Only for one Redis: on a Cluster the keys of two jobs are on different servers.
 */
export function batchScripts(
  evaluate: (evaluation: Evaluation) => Promise<unknown>,
): (call: ScriptCall) => Promise<CallReply> {
  interface Started {
    call: ScriptCall;
    resolve: (reply: CallReply) => void;
    reject: (error: unknown) => void;
  }
  let started: Started[] = [];

  function flush(): void {
    const calls = started;
    started = [];
    for (let from = 0; from < calls.length; from += CALLS_MAX)
      void send(calls.slice(from, from + CALLS_MAX));
  }

  async function send(calls: Started[]): Promise<void> {
    try {
      const alone = calls.length === 1;
      const reply = await evaluate(alone ? single(calls[0]!.call) : together(calls));
      const replies = alone ? [reply] : (reply as CallReply[]);
      for (const [index, each] of calls.entries()) answer(each, replies[index]);
    } catch (error) {
      for (const { reject } of calls) reject(error);
    }
  }

  function answer({ resolve, reject }: Started, reply: CallReply): void {
    if (reply instanceof Error) reject(reply);
    else resolve(reply);
  }

  return (call) =>
    new Promise((resolve, reject) => {
      if (started.length === 0) atEndOfTick("send", flush);
      started.push({ call, resolve, reject });
    });
}

function single({ script, keys, argv }: ScriptCall): Evaluation {
  return { lua: script.lua, sha: script.sha, keys, argv };
}

function together(calls: readonly { call: ScriptCall }[]): Evaluation {
  const { lua, sha, names } = library();
  const keys: string[] = [];
  const argv: string[] = [];
  for (const { call } of calls) {
    keys.push(...call.keys);
    argv.push(names.get(call.script)!, ...call.argv);
  }
  return { lua, sha, keys, argv };
}

interface Library {
  lua: string;
  sha: string;
  names: ReadonlyMap<SomeScript, string>;
}

let written: Library | undefined;

/** Written once: by the time the first scripts run, every file that defines one has been read. */
function library(): Library {
  if (written?.names.size !== SCRIPTS.length) {
    const lua = libraryText(SCRIPTS);
    const sha = createHash("sha1").update(lua).digest("hex");
    written = { lua, sha, names: new Map(SCRIPTS.map((script, at) => [script, String(at)])) };
  }
  return written;
}

/**
 * Each script is a function of its own KEYS and ARGV, made when it is first called: to make them all for every batch
 * would cost more than most batches.
 */
function libraryText(scripts: readonly SomeScript[]): string {
  const branches = scripts.map(
    ({ body, keys, texts }, at) =>
      `if name == '${at}' then return { ${keys.length}, ${1 + texts.length}, function(KEYS, ARGV)\n${body}\nend } end\n`,
  );
  return `${CLOCK}local function find(name)\n${branches.join("")}end\n${RUN_BATCH}`;
}

const RUN_BATCH = readFileSync(new URL("./lua/run-batch.lua", import.meta.url), "utf8");
