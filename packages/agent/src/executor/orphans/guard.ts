import { type ChildProcess, spawn } from "node:child_process";
import type { Writable } from "node:stream";
import { orphanMark } from "../child/environment.ts";
import type { ExecutorLog } from "../contract.ts";

/** Kills all process groups of this agent when the agent ends, even by SIGKILL. */
export interface Guard {
  /** Adds a group. Resolves when the guard is certain to kill it. */
  watch(groupId: number): Promise<void>;
  /** Removes a group that has ended: its id may be reused. */
  forget(groupId: number): void;
  close(): Promise<void>;
}

export interface GuardOptions {
  /** Processes that were started below it and left their group are killed too. */
  workDirectory: string;
  /** The parent of the deployments' cgroups, if there is one. */
  cgroups: string | undefined;
  /**
   * The open lock of the data directory. The guard holds it as well, so that the next agent starts nothing before the
   * children of this one are gone; else the guard would kill the new children too.
   */
  lockFd: number;
  log(line: ExecutorLog): void;
}

/**
 * A shell that reads lists of groups and kills the groups of the last list when the agent's end of the pipe closes. A
 * shell, because it outlives the agent and takes 1 MB, where Node takes 40.
 *
 * Every line is the whole list. The shell reads everything that was written before it sees the end of the pipe, so a list
 * counts once its write has returned; a partial line is ignored, and its child has not executed its program yet.
 * (`kill -s`: Debian's shell rejects `kill -KILL -- -5`.)
 */
const GUARD = `
trap '' HUP INT TERM
groups=
while read -r list; do groups=$list; done
for group in $groups; do kill -s KILL -- "-$group"; done
if [ -n "$2" ]; then
  for group in "$2"/*/; do
    [ -e "\${group}cgroup.kill" ] && echo 1 >"\${group}cgroup.kill"
    for round in 1 2 3 4 5 6 7 8 9; do
      pids=$(cat "\${group}cgroup.procs")
      [ -n "$pids" ] || break
      for pid in $pids; do kill -s KILL "$pid"; done
      sleep 0.02
    done
    rmdir "$group"
  done
  rmdir "$2"
fi
for file in $(grep -lzsF -e "$1" /proc/[0-9]*/environ); do
  pid=\${file#/proc/}
  kill -s KILL "\${pid%/environ}"
done
`;

/** Starts the guard. Throws when /bin/sh cannot be started: without a guard no child is started. */
export function startGuard({ workDirectory, cgroups, lockFd, log }: GuardOptions): Guard {
  const groups = new Set<number>();
  let closing = false;
  let shell = start();
  if (shell.pid === undefined)
    throw new Error("could not start /bin/sh, which kills the children when the agent ends");

  function start(): ChildProcess {
    const values = [orphanMark(workDirectory), cgroups ?? ""];
    const started = spawn("/bin/sh", ["-c", GUARD, "tenure-guard", ...values], {
      detached: true, // A Ctrl-C in the agent's terminal must not end the guard.
      env: { PATH: "/usr/local/bin:/usr/bin:/bin" },
      cwd: "/",
      stdio: ["pipe", "ignore", "ignore", lockFd],
    });
    started.stdin?.on("error", () => {}); // A write to a dead guard; `exit` replaces it.
    started.once("error", () => onEnd(started));
    started.once("exit", () => onEnd(started));
    // The guard alone does not keep the agent running.
    started.unref();
    return started;
  }

  function onEnd(ended: ChildProcess): void {
    if (closing || ended !== shell) return;
    log({
      level: "error",
      event: "guard.lost",
      message: "guard process of the children was killed; starting another",
    });
    setTimeout(replace, REPLACE_AFTER_MS).unref();
  }

  function replace(): void {
    if (closing) return;
    shell = start();
    void sendGroups().catch(() => {}); // It died at once; its `exit` replaces it.
  }

  function sendGroups(): Promise<void> {
    const stdin = shell.stdin as Writable;
    return new Promise((resolve, reject) => {
      stdin.write(`${[...groups].join(" ")}\n`, (error) => (error ? reject(error) : resolve()));
    });
  }

  return {
    async watch(groupId) {
      groups.add(groupId);
      await sendGroups();
    },
    forget(groupId) {
      groups.delete(groupId);
      void sendGroups().catch(() => {});
    },
    async close() {
      closing = true;
      const ended = shell;
      if (ended.pid === undefined || ended.exitCode !== null || ended.signalCode !== null) return;
      ended.ref();
      await new Promise((resolve) => {
        ended.once("exit", resolve);
        ended.stdin?.end();
      });
    },
  };
}

const REPLACE_AFTER_MS = 200;
