import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { DevAccess } from "./access.ts";

const BIN = fileURLToPath(new URL("../../bin/tenure.js", import.meta.url));
/** Node has no option for the umask of a child. `exec` keeps pid and channel. */
const WITH_UMASK = 'umask "$0"; exec "$@"';
const STOP_LIMIT_MS = 20_000;

export interface DemoUnit {
  readonly name: string;
  readonly pid: number;
  readonly directory: string;
  readonly logFile: string;
  readonly exited: Promise<string>;
  stop(): Promise<void>;
}

/**
 * Starts a node-unit as a separate process with its own session: Ctrl-C reaches only `tenure dev`, which then stops it
 * gracefully. The IPC channel ends it when `tenure dev` is killed.
 */
export function startDemoUnit(options: {
  name: string;
  url: string;
  dataDir: string;
  unitUmask: number;
  access: DevAccess | undefined;
}): DemoUnit {
  const { name, url, unitUmask } = options;
  const directory = join(options.dataDir, "nodes", name);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const logFile = join(directory, "agent.log");
  const log = openSync(logFile, "a", 0o600);
  const program = [process.execPath, BIN, "node", "run"];
  const child = spawn("/bin/sh", ["-c", WITH_UMASK, unitUmask.toString(8), ...program], {
    env: environmentOf({ name, url, directory, access: options.access }),
    detached: true,
    stdio: ["ignore", log, log, "ipc"],
  });
  closeSync(log);
  const exited = endOf(child);
  // The channel only signals the end of this process; it must not keep it alive.
  child.channel?.unref();
  child.unref();
  return {
    name,
    pid: child.pid ?? 0,
    directory,
    logFile,
    exited,
    async stop() {
      child.kill("SIGTERM");
      const end = await Promise.race([exited, wait(STOP_LIMIT_MS, "", { ref: false })]);
      if (end === "") child.kill("SIGKILL");
      await exited;
    },
  };
}

/** Our environment without the settings of another node-unit on this machine. */
function environmentOf({
  name,
  url,
  directory,
  access,
}: {
  name: string;
  url: string;
  directory: string;
  access: DevAccess | undefined;
}) {
  const foreign = /^(HOST_|NODE_UNIT_|TRUSTED_PACKAGE_REGEXP$|TENURE_)/;
  const kept = Object.entries(process.env).filter(([variable]) => !foreign.test(variable));
  return {
    ...Object.fromEntries(kept),
    HOST_URL: url,
    ...(access && { HOST_TOKEN_FILE: access.tokenFile }),
    NODE_UNIT_NAME: name,
    NODE_UNIT_DATA_DIR: directory,
    NODE_UNIT_STOP_GRACE_MS: "3000",
    ENABLE_CUSTOM_COMMAND: "true",
  };
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) => resolve(signal ?? `exit code ${code}`));
  });
}
