import { type ParseArgsConfig, parseArgs } from "node:util";

export interface Refusing {
  /** Says what is wrong and how it is meant, and ends. */
  refuse(problem: string): never;
  numberOf(name: string, text: string, limits: { least: number }): number;
}

/** Parses the arguments of one of the project's own commands. Prints a line and exits with 2 for an argument it does not have. */
export function readCommandLine<const Config extends ParseArgsConfig>(
  usage: string,
  config: Config,
): ReturnType<typeof parseArgs<Config>> & Refusing {
  function refuse(problem: string): never {
    console.error(`${problem}\n\n${usage}`);
    process.exit(2);
  }

  function parse() {
    try {
      return parseArgs(config);
    } catch (error) {
      return refuse((error as Error).message);
    }
  }

  function numberOf(name: string, text: string, { least }: { least: number }): number {
    const number = Number(text);
    if (text.trim() !== "" && Number.isSafeInteger(number) && number >= least) return number;
    return refuse(`--${name} ${text}: not a whole number of at least ${least}`);
  }

  if ((config.args ?? process.argv).includes("--help")) {
    console.log(usage);
    process.exit(0);
  }
  return { ...parse(), refuse, numberOf };
}

/** The things a command can be asked for, a line each. */
export function renderChoices(things: readonly { name: string; summary: string }[]): string {
  const width = Math.max(...things.map(({ name }) => name.length));
  return things.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join("\n");
}

/** The items with this name, in their own order; all of them without a name. */
export function chosen<Thing extends { name: string }>(
  things: readonly Thing[],
  names: readonly string[],
  refuse: (problem: string) => never,
): Thing[] {
  const unknown = names.filter((name) => !things.some((thing) => thing.name === name));
  if (unknown.length > 0) refuse(`there is no ${unknown.join(", ")}`);
  return things.filter(({ name }) => names.length === 0 || names.includes(name));
}
