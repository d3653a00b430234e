import assert from "node:assert";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import type { MemorySpace } from "./memory-space.ts";

/**
 * One decision over the hot state, atomic in every store: a Lua file for Redis and, for the store in
 * memory, a function over the same structures. The conformance suite runs both against one story.
 */
export interface Script<Key extends string, Args, Reply> {
  readonly name: string;
  readonly lua: string;
  readonly body: string;
  readonly sha: string;
  readonly keys: readonly Key[];
  /** Arguments that travel as they are, outside of the JSON object. */
  readonly texts: readonly (keyof Args & string)[];
  readonly args: Check<Args>;
  readonly reply: Check<Reply>;
  readonly memory: (space: MemorySpace, keys: Record<Key, string>, args: Args) => Reply;
}

/** What a schema does at the border: the value as it should be, or a throw. */
export interface Check<T> {
  parse(value: unknown): T;
}

/** A script of whatever keys and arguments. */
export interface SomeScript {
  readonly name: string;
  readonly lua: string;
  /** What `lua` does, without what stands once before all. */
  readonly body: string;
  readonly sha: string;
  readonly keys: readonly string[];
  readonly texts: readonly string[];
}

/** Every script that is defined, in the order they were. */
export const SCRIPTS: SomeScript[] = [];

export const CLOCK = readFileSync(new URL("./lua/clock.lua", import.meta.url), "utf8");
const PRELUDE = readFileSync(new URL("./lua/prelude.lua", import.meta.url), "utf8");

/**
 * Binds a Lua file to its types, and to the function that means the same in memory. Names cross the border,
 * positions do not: arguments travel as one JSON object, and the file must unpack its keys under the names,
 * and in the order, given here. Nobody can swap two arguments, and neither side can be edited out of step.
 *
 * An argument named in `texts` is a string that Lua need not understand, such as a payload: it stands beside the
 * object, under the same check of its name. Inside it would be escaped here and unescaped there, 256 KiB at a time.
 */
export function defineScript<Key extends string, Args, Reply>(script: {
  file: URL;
  keys: readonly Key[];
  texts?: readonly (keyof Args & string)[];
  args: Check<Args>;
  reply: Check<Reply>;
}): { inMemory(memory: Script<Key, Args, Reply>["memory"]): Script<Key, Args, Reply> } {
  const text = readFileSync(script.file, "utf8");
  const texts = script.texts ?? [];
  const positions = script.keys.map((_, index) => `KEYS[${index + 1}]`);
  assertSays(`local ${script.keys.join(", ")} = ${positions.join(", ")}\n`);
  const further = texts.map((_, index) => `ARGV[${index + 2}]`);
  if (texts.length > 0) assertSays(`local ${texts.join(", ")} = ${further.join(", ")}\n`);
  const name = basename(script.file.pathname, ".lua");
  return { inMemory: (memory) => register({ ...script, name, texts }, text, memory) };

  function assertSays(contract: string): void {
    assert(text.includes(contract), `${script.file.pathname} must say: ${contract}`);
  }
}

/** Binds one line of Lua over `key` to its types and to its form in memory. */
export function defineInline<Args, Reply>(
  { name, lua, args, reply }: { name: string; lua: string; args: Check<Args>; reply: Check<Reply> },
  memory: (space: MemorySpace, key: string, args: Args) => Reply,
): Script<"key", Args, Reply> {
  const text = `local key = KEYS[1]\n${lua}\n`;
  const script = { name, keys: ["key"] as const, texts: [], args, reply };
  return register(script, text, (space, { key }, args) => memory(space, key, args));
}

function register<Key extends string, Args, Reply>(
  script: Pick<Script<Key, Args, Reply>, "name" | "keys" | "texts" | "args" | "reply">,
  text: string,
  memory: Script<Key, Args, Reply>["memory"],
): Script<Key, Args, Reply> {
  const body = PRELUDE + text;
  const lua = CLOCK + body;
  const sha = createHash("sha1").update(lua).digest("hex");
  const defined = { ...script, lua, body, sha, memory };
  SCRIPTS.push(defined);
  return defined;
}
