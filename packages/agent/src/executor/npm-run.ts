import { setTimeout as wait } from "node:timers/promises";
import type { RunNpm } from "../install/installer.ts";
import { findNpm, NPM_INSTALL, NPM_INSTALL_LOCKED, type NpmCommand } from "../install/npm.ts";
import { pumpLines } from "../logs/line-pump.ts";
import { createTail, storable } from "../logs/tail.ts";
import { unlessAborted } from "./abort.ts";
import { npmEnvironment } from "./child/environment.ts";
import { groupGone, signalGroup } from "./child/group.ts";
import { type Exit, launch } from "./child/launch.ts";
import type { Guard } from "./orphans/guard.ts";

/** The server ends a reservation after the same time. */
const INSTALL_MS_MAX = 10 * 60_000;
const OUTPUT = { bytesMax: 3_072, linesMax: 30 };
const GONE_MS = 10_000;

/**
 * npm only warns of a file that it could not unpack, and exits with 0: on a full disk it leaves a package of empty files
 * (npm 11, measured). These lines are the only sign of it.
 */
const NOT_UNPACKED = /^.*TAR_ENTRY_ERROR.*$/m;

/** Returns a function that runs npm in a process group that ends with the agent, and keeps the end of its output. */
export function createRunNpm(
  guard: Guard,
  { env, umask }: { env: NodeJS.ProcessEnv; umask?: number | undefined },
  find: (env: NodeJS.ProcessEnv) => NpmCommand = findNpm,
): RunNpm {
  return async (directory, signal, { isLocked = false } = {}) => {
    const npm = find(env);
    const program = {
      file: npm.file,
      args: [
        ...npm.args,
        ...(isLocked ? NPM_INSTALL_LOCKED : NPM_INSTALL),
        `--prefix=${directory}`,
      ],
      env: npmEnvironment(env),
      directory,
      umask,
    };
    const { pid, stdout, stderr, exited } = await launch(program, guard);
    const tail = createTail(OUTPUT);
    let notUnpacked: string | undefined;
    const keep = async (lines: Buffer): Promise<void> => {
      tail.add(lines);
      notUnpacked ??= NOT_UNPACKED.exec(lines.toString())?.[0];
    };
    const outputs = Promise.all([pumpLines(stdout, keep), pumpLines(stderr, keep)]);
    const limit = AbortSignal.timeout(INSTALL_MS_MAX);
    const exit = await unlessAborted(exited, AbortSignal.any([signal, limit]));
    signalGroup(pid, "SIGKILL");
    await groupGone(pid, GONE_MS);
    await exited;
    guard.forget(pid);
    await Promise.race([outputs, wait(GONE_MS, undefined, { ref: false })]);
    if (notUnpacked !== undefined)
      return { problem: "could not unpack every file", output: storable(notUnpacked) };
    return { problem: problemOf(exit, limit.aborted), output: tail.text() };
  };
}

function problemOf(exit: Exit | undefined, isLate: boolean): string | undefined {
  if (isLate) return `did not end within ${INSTALL_MS_MAX / 60_000} minutes`;
  if (!exit) return "was cancelled";
  if (exit.code === 0) return undefined;
  return exit.signal ? `was ended by ${exit.signal}` : `failed with exit code ${exit.code}`;
}
