import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { until } from "../until.ts";
import { descendantsOf, isFrozen, signal } from "./proc.ts";
import { forget, remember } from "./process-registry.ts";

export interface DaemonSpec {
  name: string;
  command: string;
  args: string[];
  env: Record<string, string>;
  cwd: string;
  runAs?: { uid: number; gid: number } | undefined;
  logFile: string;
  /** What ends it at once, without leaving anything behind. */
  endSignal: NodeJS.Signals;
  isReady: () => Promise<boolean>;
}

/** A store's server process that we own by pid, and can stop and start again as often as we like. */
export interface Daemon {
  readonly pid: number;
  start(): Promise<void>;
  /** Waits until it answers; starts it again if it has ended of itself. */
  revive(): Promise<void>;
  /** Sends the signal and waits for the exit. */
  end(endSignal: NodeJS.Signals): Promise<void>;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
}

const startDeadlineMs = 30_000;
const endDeadlineMs = 20_000;

export function createDaemon(spec: DaemonSpec): Daemon {
  let child: ChildProcess | undefined;
  const isRunning = () => child !== undefined && child.exitCode === null && !child.signalCode;
  const pid = () => child?.pid ?? 0;
  const tree = () => [pid(), ...descendantsOf(pid())];

  async function start(): Promise<void> {
    if (isRunning()) throw new Error(`${spec.name} is already running`);
    child = launch(spec);
    if (!(await isReadyAtLast()))
      throw new Error(`${spec.name} ended while starting: ${logTail(spec)}`);
  }

  /** False: it has ended. */
  async function isReadyAtLast(): Promise<boolean> {
    const readyOrGone = async () => !isRunning() || (await spec.isReady());
    await until(readyOrGone, { deadlineMs: startDeadlineMs, what: `${spec.name} to be ready` });
    return isRunning();
  }

  async function end(endSignal: NodeJS.Signals): Promise<void> {
    if (!isRunning()) return;
    signal(pid(), endSignal);
    for (const member of tree()) signal(member, "SIGCONT");
    const gone = () => !isRunning();
    await until(gone, { deadlineMs: endDeadlineMs, what: `the end of ${spec.name}` });
  }

  /** The parent first: it could still fork a child that the list does not have. */
  async function freeze(): Promise<void> {
    signal(pid(), "SIGSTOP");
    await until(() => isFrozen(pid()), { what: `${spec.name} to freeze` });
    for (const member of descendantsOf(pid())) signal(member, "SIGSTOP");
    await until(() => tree().every(isFrozen), { what: `the children of ${spec.name} to freeze` });
  }

  async function thaw(): Promise<void> {
    for (const member of tree().reverse()) signal(member, "SIGCONT");
    await until(() => !tree().some(isFrozen), { what: `${spec.name} to thaw` });
  }

  return {
    get pid() {
      return pid();
    },
    start,
    async revive() {
      if (!(await isReadyAtLast())) await start();
    },
    end,
    freeze,
    thaw,
  };
}

function launch({ command, args, env, cwd, runAs, logFile, endSignal }: DaemonSpec): ChildProcess {
  const log = openSync(logFile, "a");
  // Detached: a Ctrl-C in the terminal is ours to hear; the store ends when we say so.
  const child = spawn(command, args, {
    env,
    cwd,
    detached: true,
    stdio: ["ignore", log, log],
    ...runAs,
  });
  closeSync(log);
  child.once("error", () => {}); // not started: no pid, and the waiting caller tells
  const { pid } = child;
  if (pid === undefined) return child;
  remember(pid, endSignal);
  child.once("exit", () => forget(pid));
  child.unref();
  return child;
}

function logTail({ logFile }: DaemonSpec): string {
  return readFileSync(logFile, "utf8").trim().split("\n").slice(-3).join(" | ");
}
