import assert from "node:assert";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import type { MemorySpace } from "./memory-space.ts";

/**
 * One atomic decision over the hot state: a Lua file for Redis and, for the memory store, a function over the same
 * structures. The conformance suite runs both through the same cases.
 */
export interface Script<Key extends string, Args, Reply> {
  readonly name: string;
  readonly lua: string;
  readonly head: string;
  readonly body: string;
  readonly sha: string;
  readonly keys: readonly Key[];
  /** Arguments that are passed unescaped, outside of the JSON object. */
  readonly texts: readonly string[];
  readonly args: Check<Args>;
  /** Writes the arguments for Redis. The form in memory gets them as they are. */
  readonly wire?: ((args: Args) => Readonly<Record<string, string>>) | undefined;
  readonly reply: Check<Reply>;
  readonly memory: (space: MemorySpace, keys: Record<Key, string>, args: Args) => Reply;
}

/** Parses a value or throws, as a zod schema does. */
export interface Check<T> {
  parse(value: unknown): T;
}

/** A script of any keys and arguments. */
export interface SomeScript {
  readonly name: string;
  readonly lua: string;
  /** What the file defines before it unpacks its keys: a batch evaluates it once, not for each call. */
  readonly head: string;
  /** The rest of the file: what runs for each call. */
  readonly body: string;
  readonly sha: string;
  readonly keys: readonly string[];
  readonly texts: readonly string[];
}

/** All defined scripts, in the order of their definition. */
export const SCRIPTS: SomeScript[] = [];

/** Stands once before the scripts that run together. */
export const SHARED = ["clock", "deferred-writes"]
  .map((name) => readFileSync(new URL(`./lua/${name}.lua`, import.meta.url), "utf8"))
  .join("");
const PRELUDE = readFileSync(new URL("./lua/prelude.lua", import.meta.url), "utf8");

/**
 * Binds a Lua file to its types, and to its form in memory. Arguments are passed by name, as one JSON object, and the file
 * must unpack its keys under the names and in the order given here: two arguments cannot be swapped, and neither side can
 * be changed without the other.
 *
 * An argument in `texts` is a string that Lua does not parse, such as a payload. It is passed beside the object, under the
 * same check of its name; inside, up to 256 KiB would be escaped here and unescaped there.
 */
export function defineScript<
  Key extends string,
  Args,
  Reply,
  Texts extends string = keyof Args & string,
>(script: {
  file: URL;
  keys: readonly Key[];
  texts?: readonly Texts[];
  args: Check<Args>;
  wire?: (args: Args) => Readonly<Record<Texts, string>>;
  reply: Check<Reply>;
}): { inMemory(memory: Script<Key, Args, Reply>["memory"]): Script<Key, Args, Reply> } {
  const text = readFileSync(script.file, "utf8");
  const texts = script.texts ?? [];
  const positions = script.keys.map((_, index) => `KEYS[${index + 1}]`);
  assertContains(`local ${script.keys.join(", ")} = ${positions.join(", ")}\n`);
  const further = texts.map((_, index) => `ARGV[${index + 2}]`);
  if (texts.length > 0) assertContains(`local ${texts.join(", ")} = ${further.join(", ")}\n`);
  const name = basename(script.file.pathname, ".lua");
  return { inMemory: (memory) => register({ ...script, name, texts }, text, memory) };

  function assertContains(contract: string): void {
    assert(text.includes(contract), `${script.file.pathname} must contain: ${contract}`);
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
  script: Pick<Script<Key, Args, Reply>, "name" | "keys" | "texts" | "args" | "wire" | "reply">,
  text: string,
  memory: Script<Key, Args, Reply>["memory"],
): Script<Key, Args, Reply> {
  const unpacked = text.indexOf(`local ${script.keys[0]}`);
  const head = text.slice(0, unpacked);
  const body = PRELUDE + text.slice(unpacked);
  const lua = SHARED + head + body;
  const sha = createHash("sha1").update(lua).digest("hex");
  const defined = { ...script, lua, head, body, sha, memory };
  SCRIPTS.push(defined);
  return defined;
}
