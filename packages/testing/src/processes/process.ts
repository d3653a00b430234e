import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { repositoryRoot } from "../repository.ts";
import { scratchDirectory } from "../scratch.ts";
import { tlsRunEnvironment } from "../tls-run.ts";
import { until } from "../until.ts";
import { isFrozen, residentMb, signal } from "./proc.ts";
import { forget, remember } from "./process-registry.ts";

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export interface RunningProcess {
  readonly pid: number;
  readonly exited: Promise<Exit>;
  /** What it has written so far (the last `linesMax` lines), by stream. */
  stdout(): string;
  stderr(): string;
  /** The first line of either stream that matches, also one that came before the call. */
  waitForLine(pattern: RegExp, deadlineMs?: number): Promise<RegExpExecArray>;
  /** SIGTERM and wait. One that is not gone in time is killed, and the call fails. */
  stop(graceMs?: number): Promise<Exit>;
  kill9(): Promise<Exit>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  rssMb(): number;
  /** A line on its standard input; it must have been started with `hears`. */
  tell(line: string): void;
}

export interface ProcessSpec {
  command: string;
  args?: string[];
  /** Besides PATH, HOME, LANG and TMPDIR; nothing else of the tests' own environment goes along. */
  env?: Record<string, string>;
  cwd?: string;
  /** It gets a standard input, for `tell`. */
  hears?: boolean;
}

/** Starts a program that ends with this process at the latest. */
export function startProcess(spec: ProcessSpec): RunningProcess {
  const child = spawn(spec.command, spec.args ?? [], {
    env: { ...basicEnvironment(), ...tlsRunEnvironment(), ...spec.env },
    cwd: spec.cwd ?? repositoryRoot,
    detached: true, // a Ctrl-C in the terminal is ours to hear
    stdio: [spec.hears ? "pipe" : "ignore", "pipe", "pipe"],
  });
  child.stdin?.on("error", () => {}); // it ended before it had read: its exit says so
  const { pid } = child;
  if (pid === undefined) {
    child.once("error", () => {});
    throw new Error(`${spec.command} cannot be started in ${spec.cwd ?? repositoryRoot}`);
  }
  remember(pid, "SIGKILL");
  const output = capture(child);
  const exited = exitOf(child);
  const what = [spec.command, ...(spec.args ?? [])].join(" ");

  async function waitForLine(pattern: RegExp, deadlineMs = 60_000): Promise<RegExpExecArray> {
    const lineOrEnd = async () => {
      const ended = hasEnded(child) && (await exited); // by then its last lines are here
      return output.find(pattern) ?? (ended ? "ended" : undefined);
    };
    const found = await until(lineOrEnd, { deadlineMs, what: `${pattern}` }).catch(
      () => `ran for ${deadlineMs} ms`,
    );
    if (typeof found !== "string") return found;
    throw new Error(`${what} ${found} without a line ${pattern}; it wrote:\n${output.all()}`);
  }

  async function end(name: NodeJS.Signals): Promise<Exit> {
    if (!hasEnded(child)) {
      signal(child.pid ?? 0, name);
      signal(child.pid ?? 0, "SIGCONT"); // a frozen process hears it only when thawed
    }
    return exited;
  }

  async function stop(graceMs = 40_000): Promise<Exit> {
    const inTime = await Promise.race([end("SIGTERM"), wait(graceMs, undefined, { ref: false })]);
    if (inTime !== undefined) return inTime;
    await end("SIGKILL");
    throw new Error(`${what} did not stop within ${graceMs} ms; it wrote:\n${output.all()}`);
  }

  async function freeze(): Promise<void> {
    signal(child.pid ?? 0, "SIGSTOP");
    await until(() => isFrozen(child.pid ?? 0), { what: `${what} to freeze` });
  }

  async function thaw(): Promise<void> {
    signal(child.pid ?? 0, "SIGCONT");
    await until(() => !isFrozen(child.pid ?? 0), { what: `${what} to thaw` });
  }

  return {
    pid,
    exited,
    stdout: () => output.of("stdout"),
    stderr: () => output.of("stderr"),
    waitForLine,
    stop,
    kill9: () => end("SIGKILL"),
    freeze,
    thaw,
    rssMb: () => residentMb(pid),
    tell: (line) => void child.stdin?.write(`${line}\n`),
  };
}

export interface TenureOptions {
  env?: Record<string, string>;
  cwd?: string;
  /** The program to run; without it that of this repository. */
  bin?: string;
  /** Export conditions, such as "tenure-test" for failpoints. */
  conditions?: string[];
  /** `true` gives it a new directory; a string one that an earlier process has used. */
  dataDir?: true | string;
}

/** Runs the built command line. */
export function startTenure(
  args: string[],
  options: TenureOptions = {},
): RunningProcess & { readonly dataDir: string | undefined } {
  const { env = {}, conditions = [], cwd = repositoryRoot } = options;
  const { bin = join(repositoryRoot, "packages/cli/bin/tenure.js") } = options;
  const dataDir = options.dataDir === true ? scratchDirectory("data") : options.dataDir;
  const running = startProcess({
    command: process.execPath,
    args: [
      ...conditions.map((condition) => `--conditions=${condition}`),
      bin,
      ...args,
      ...(dataDir === undefined ? [] : ["--data-dir", dataDir]),
    ],
    env: { ...tlsRunEnvironment(args[0]), ...env },
    cwd,
  });
  return { ...running, dataDir };
}

const linesMax = 20_000;
const lastOutputMs = 500;

type StreamName = "stdout" | "stderr";

function capture(child: ChildProcess) {
  const lines: { stream: StreamName; text: string }[] = [];
  for (const stream of ["stdout", "stderr"] as const) {
    const input = child[stream];
    if (input === null) continue;
    createInterface({ input }).on("line", (text) => {
      lines.push({ stream, text });
      if (lines.length > linesMax) lines.shift();
    });
  }
  const textOf = (chosen: typeof lines) => chosen.map((line) => line.text).join("\n");
  return {
    of: (stream: StreamName) => textOf(lines.filter((line) => line.stream === stream)),
    all: () => textOf(lines.slice(-50)),
    find(pattern: RegExp): RegExpExecArray | undefined {
      const once = new RegExp(pattern.source, pattern.flags.replace(/[gy]/g, "")); // no lastIndex
      return lines.map(({ text }) => once.exec(text)).find((match) => match !== null);
    },
  };
}

/** Gives the last lines a moment to arrive, but no longer: a grandchild may hold the pipe open. */
function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve) => {
    child.once("exit", (code, name) => {
      forget(child.pid ?? 0);
      const done = () => resolve({ code, signal: name });
      child.once("close", done);
      setTimeout(done, lastOutputMs).unref();
    });
  });
}

function hasEnded(child: ChildProcess): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

function basicEnvironment(): Record<string, string> {
  const names = ["PATH", "HOME", "LANG", "TMPDIR"];
  const present = names.map((name) => [name, process.env[name]] as const);
  return Object.fromEntries(present.filter((pair): pair is [string, string] => Boolean(pair[1])));
}
